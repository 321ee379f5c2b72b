"""How many cores there are to be used: by affinity, and by the limits of control groups."""

import os
from pathlib import Path

import pytest

from engine.lib.cores import usable_cores


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3}, raising=False)


def _cores(tmp_path: Path, mine: str, limits: dict[str, str]) -> float:
    (tmp_path / "mine").write_text(mine)
    groups = tmp_path / "groups"
    for group, limit in limits.items():
        (groups / group).mkdir(parents=True, exist_ok=True)
        (groups / group / "cpu.max").write_text(limit)
    return usable_cores(tmp_path / "mine", groups)


@pytest.mark.usefixtures("four")
def test_the_least_limit_of_all_groups_around_counts(tmp_path: Path) -> None:
    mine = "0::/kubepods/pod1/box\n"
    assert _cores(tmp_path, mine, {"kubepods/pod1/box": "max 100000\n"}) == 4
    assert _cores(tmp_path, mine, {"kubepods/pod1/box": "250000 100000\n"}) == 2.5
    assert _cores(tmp_path, mine, {"kubepods/pod1": "50000 100000\n"}) == 0.5
    assert _cores(tmp_path, mine, {"kubepods": "900000 100000\n"}) == 0.5


@pytest.mark.usefixtures("four")
def test_in_a_container_its_group_is_the_root(tmp_path: Path) -> None:
    assert _cores(tmp_path, "0::/\n", {"": "100000 100000\n"}) == 1
    # Or its path is the host's, which it does not see.
    assert _cores(tmp_path, "0::/../../pod9\n", {"": "100000 100000\n"}) == 1
    assert _cores(tmp_path, "0::/kubepods/pod9\n", {"": "100000 100000\n"}) == 1


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize("text", ["", "max", "0 0", "a b", "1 2 3", "100000 0"])
def test_what_is_no_limit_limits_nothing(tmp_path: Path, text: str) -> None:
    assert _cores(tmp_path, "0::/\n", {"": text}) == 4


@pytest.mark.usefixtures("four")
def test_without_groups_of_this_kind_affinity_counts(tmp_path: Path) -> None:
    assert _cores(tmp_path, "4:cpu:/pod\n", {"pod": "100000 100000"}) == 4
    assert usable_cores(tmp_path / "nothing", tmp_path) == 4


def test_here_there_is_some() -> None:
    assert 0 < usable_cores() <= (os.cpu_count() or 1)
