"""`starsched check --deep`: queues that could take from each other in turn."""

from typing import Final

from engine.core.scheduling.reclaim_circles import as_test, find_circle, in_words
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.policy_files import PolicyFiles
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.hook_signatures import hook_signatures
from engine.policy.sandbox.process import SandboxEvaluator
from engine.surfaces.cli.working import working

# So many random clusters of the document's own queues, and of made-up ones: seconds each.
_STATES: Final = 1_500
_SEED: Final = 20_261_129


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
        for given in ([tree.given] if tree.given else []) + [()]:
            found, looked = find_circle(hooks, given, _SEED, _STATES)
            if found is not None:
                break
        else:
            return None
    finally:
        evaluator.close()
    policy = bundle.policies[tree.policy]
    line = hook_signatures(bundle.files[policy.module])["reclaim"].line
    message = (
        f"reclaim() of `{tree.policy}` could have two queues take from each other in turn; found "
        f"after {looked} reclaims: " + in_words(found).replace("\n", "; ")
    )
    hint = "`limits.minRuntime` keeps them apart for that long; the test below shows the circle"
    module = files.shown(policy.module) if not policy.is_builtin else policy.module
    return Problem(module, line, 0, message, hint, "warning"), as_test(found, tree.policy)
