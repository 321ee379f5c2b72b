"""What tests of commands share."""

import pytest

from engine.policy.evaluator import InProcessEvaluator


@pytest.fixture
def policies_load_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands evaluate policies in this process only: none of the test's takes memory or time."""
    for module in ("engine.surfaces.cli.policy_paths", "workbench.cli.acceptance_check"):
        monkeypatch.setattr(f"{module}.SandboxEvaluator", InProcessEvaluator)
