"""Configuration documents: a KubeSchedulerConfiguration, a PolicyRuntime, or several of both."""

from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors


def run(data: bytes) -> None:
    """Build a bundle of a document and one policy."""
    text = data.decode(errors="replace")
    policy = 'def filter(pod, node, args = {"a": 1}):\n    return None\n'
    try:
        bundle = build_bundle({"config.yaml": text, "mine.star": policy})
    except PolicyErrors as error:
        str(error)
        return
    assert bundle.profiles
    for warning in bundle.warnings:
        str(warning)
