"""Arguments that a pack cannot use: refused with the edit, with the place and the policy named."""

import pytest

from engine.policy.bundle import build_bundle
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator

_PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [%s]}}
  pluginConfig: [%s]
"""


def _problems(files: dict[str, str] | None = None, **arguments: str) -> list[str]:
    """What is said of policies that are enabled with these arguments."""
    enabled = ", ".join(f"{{name: {name}}}" for name in arguments)
    configured = ", ".join(f"{{name: {name}, args: {{{a}}}}}" for name, a in arguments.items() if a)
    profile = _PROFILE % (enabled, configured)
    bundle = build_bundle({"profile.yaml": profile, **(files or {})})
    with pytest.raises(PolicyErrors) as refused:
        InProcessEvaluator(bundle.program)
    return [str(problem) for problem in refused.value.problems]


def test_a_key_that_is_missing_is_reported_with_the_edit() -> None:
    """Only the hook asked for it: `check` found nothing wrong, and then each pod failed."""
    profile = _PROFILE % ("{name: NodeMetadata}", "{name: NodeMetadata, args: {%s}}")
    (warning,) = build_bundle({"profile.yaml": profile % "metadataSource: Label"}).warnings
    assert str(warning) == (
        "profile.yaml:5:3: profiles[0]: pluginConfig: NodeMetadata: metadataKey: required value\n"
        "hint: without it, `NodeMetadata` fails for each pod"
    )
    for given in ("metadataKey: a", "metadata_key: a"):
        assert build_bundle({"profile.yaml": profile % given}).warnings == ()


def test_of_several_policies_the_one_with_the_argument_is_named() -> None:
    """Both were told of as `@std/arguments.star:14:9: scale: ...`."""
    reported = _problems(KubeRL="scale: 0", Congestion="scale: 200", Peaks="models: {a: {k1: 1}}")
    assert [f"{one.split(':')[0]}:{one.split(':', 2)[2]}" for one in reported] == [
        "@congestion/congestion.star: scale: want a number above 0 and at most 100, got 200",
        "@reward/kube_rl.star: scale: want a number above 0 and at most 100, got 0",
        "@trimaran/peaks.star: models.a.k2: want a number, got None",
    ]


def test_a_policy_of_ones_own_is_named_with_its_line() -> None:
    text = """\
load("@std/arguments.star", "want_one_of")

args = plugin_args(mode = "a")

want_one_of("mode", args.mode, ["a", "b"])

def filter(pod, node):
    return None
"""
    (reported,) = _problems({"mine.star": text}, mine="mode: c")
    assert reported == "mine.star:5: mode: want a or b, got `c`"
