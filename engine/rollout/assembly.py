"""Builds the real parts of a roll-out: bundles, sandboxes and confined tests.

Owns nothing but the choice; a process with other needs passes other functions to `CandidateStages`.
"""

import threading
from collections.abc import Mapping

from engine.policy.bundle import Bundle, build_bundle
from engine.policy.config import decode_configuration
from engine.policy.errors import Problem
from engine.policy.evaluator import Evaluator
from engine.policy.sandbox.process import SandboxEvaluator
from engine.policy.sandbox.warm_pool import WarmPool
from engine.policy.start_check import require_usable
from engine.rollout.trial import CandidateStages
from engine.testing.process import run_tests_confined
from engine.testing.runner import failed


def make_stages(config_text: str | None = None, file: str = "--config") -> CandidateStages:
    """The stages of a candidate; bundles take their profiles from *config_text*, if given.

    *file* names that text in problems.
    Raises `PolicyErrors` if that is no KubeSchedulerConfiguration.
    """
    config = decode_configuration(config_text, file) if config_text is not None else None

    pool = WarmPool()
    closed = threading.Event()

    def build(files: Mapping[str, str]) -> Bundle:
        return build_bundle(files, config)

    def make_evaluator(bundle: Bundle) -> Evaluator:
        return SandboxEvaluator(bundle.program, pool)

    def run_tests(files: Mapping[str, str]) -> list[Problem]:
        return failed(run_tests_confined(files, config_text, is_stopped=closed.is_set))

    def check(files: Mapping[str, str]) -> None:
        require_usable(config, files)

    def close() -> None:
        # Tests run in a thread that the process waits for at its end.
        closed.set()
        pool.close()

    return CandidateStages(
        build=build,
        make_evaluator=make_evaluator,
        run_tests=run_tests,
        on_close=close,
        require_usable=check,
    )
