"""The exit code of an explanation, the same for each command that gives one."""

from engine.surfaces.live.answers import PodAnswer

PLACED, FAILED, UNSCHEDULABLE = 0, 1, 3


def exit_code(answer: PodAnswer) -> int:
    """0 for a pod that has or would get a node, 3 for one that fits nowhere, 1 after a failure."""
    if answer.outcome == "failed":
        return FAILED
    return PLACED if answer.outcome in ("placed", "bound") else UNSCHEDULABLE
