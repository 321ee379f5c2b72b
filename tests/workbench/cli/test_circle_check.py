"""`check --deep` finds queues that could take from each other in turn, where there are some."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.engine.core.kernel.queue_world import FAIR, tree_files
from tests.engine.core.kernel.test_reclaims import EVICTING, LENT, SHARED
from workbench.cli.main import main

#: Takes also what others have right up to their quotas, which are of cores and not of single units.
AT_QUOTA = LENT.replace(
    "over(victim.queue.allocated, victim.queue.quota)",
    'victim.queue.allocated.get("cpu", 0) >= victim.queue.quota.get("cpu", 1)',
)
QUOTAS = {
    "top": {"quota": {"cpu": 3}},
    "top/a": {"quota": {"cpu": 2}},
    "top/b": {"quota": {"cpu": 2}},
}


def _written(place: Path, policy: str, **document: Any) -> Path:
    for name, text in tree_files(policy, **document).items():
        (place / name).write_text(text)
    return place


def _run(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


@pytest.mark.parametrize(
    ("policy", "document"),
    [
        pytest.param(EVICTING, {"queues": {"top/a": {}, "top/b": {}}}, id="always takes"),
        pytest.param(SHARED, {"queues": {"a": {"weight": 2}, "b": {}}}, id="larger than a share"),
        pytest.param(AT_QUOTA, {"queues": QUOTAS}, id="up to a quota of cores"),
        pytest.param(SHARED, {"objects": [{"apiVersion": "x/v1", "kind": "Q"}]}, id="made up"),
    ],
)
def test_a_circle_is_a_warning_with_a_test_that_shows_it(
    tmp_path: Path, policy: str, document: dict[str, Any]
) -> None:
    place = _written(tmp_path, policy, **document)
    found = _run("check", place, "--deep")
    assert found.exit_code == 0, "a warning"
    assert "warning: reclaim() of `fair` could have two queues take from each other" in found.output
    assert "fair.star:" in found.output.splitlines()[0]
    start = found.output.index('"""Two queues must not')
    test = found.output[start : found.output.rindex("\n\n")]
    (place / "fair_test.star").write_text(test)
    outcome = _run("test", place)
    assert outcome.exit_code == 1
    assert "victims" in outcome.output, "the second one takes, where none should"
    assert _run("check", place, "--deep", "--strict").exit_code == 1


@pytest.mark.parametrize("policy", [LENT, FAIR], ids=["gives back what it borrows", "no reclaim"])
def test_a_policy_without_circles_has_no_warning(tmp_path: Path, policy: str) -> None:
    place = _written(tmp_path, policy, queues={"top/a": {}, "top/b": {}})
    found = _run("check", place, "--deep", "--strict")
    assert "take from each other" not in found.output
