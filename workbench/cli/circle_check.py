"""`starsched check --deep`: queues that could take from each other in turn."""

from dataclasses import replace
from typing import Final

from engine.core.scheduling.reclaim_circles import as_test, search, warning_of
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.policy_files import PolicyFiles
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.sandbox.process import SandboxEvaluator
from engine.surfaces.cli.working import working

# So many random clusters of the document's own queues, and of made-up ones: seconds each.
_STATES: Final = 1_500


@working("looking for queues that take from each other in turn")
def circle_in(bundle: Bundle, files: PolicyFiles) -> tuple[Problem, str] | None:
    """The warning about the first circle that is found, and a test of it; None: there is none."""
    tree = bundle.queue_tree
    if tree is None or "reclaim" not in tree.hooks:
        return None
    evaluator = SandboxEvaluator(bundle.program)
    try:
        evaluator.wait_until_ready()
        hooks = Scheduler(bundle, evaluator).tree
        assert hooks is not None, "the bundle has a tree"
        circle, looked = search(hooks, _STATES)
    finally:
        evaluator.close()
    if circle is None:
        return None
    warning = warning_of(circle, looked, bundle)
    hint = "`limits.minRuntime` keeps them apart for that long; the test below shows the circle"
    place = files.shown(warning.file)
    return replace(warning, file=place, hint=hint), as_test(circle, tree.policy)
