"""Profiles of a few policies alone, as files of a bundle have them."""

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


def only(*names: str) -> str:
    """A profile of these policies alone, beside what every profile needs.

    A name may have a weight: `{name: TaintToleration, weight: 1}`.
    """
    entries = [
        name if name.startswith("{") else f"{{name: {name}}}"
        for name in ("PrioritySort", "DefaultBinder", *names)
    ]
    return _PROFILE.format(enabled=", ".join(entries))
