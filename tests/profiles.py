"""The default profile as a bundle, and profiles of a few policies alone as files of one."""

import functools

from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator

_PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{{name: "*"}}]
      enabled: [{enabled}]
"""


@functools.cache
def default_bundle() -> Bundle:
    """The shipped policies of the default profile; built once, when a test first needs them."""
    return build_bundle({})


@functools.cache
def default_evaluator() -> InProcessEvaluator:
    """The evaluator of `default_bundle`, shared by tests."""
    return InProcessEvaluator(default_bundle().program)


def only(*names: str) -> str:
    """A profile of these policies alone, beside what every profile needs.

    A name may have a weight: `{name: TaintToleration, weight: 1}`.
    """
    entries = [
        name if name.startswith("{") else f"{{name: {name}}}"
        for name in ("PrioritySort", "DefaultBinder", *names)
    ]
    return _PROFILE.format(enabled=", ".join(entries))
