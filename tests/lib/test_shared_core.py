"""Two that take turns run on one core, and are free afterwards."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator

import pytest

from engine.lib import shared_core
from engine.lib.shared_core import SharedCore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cores are Linux's to give")


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        yield started
        started.kill()


@pytest.fixture
def everywhere() -> set[int]:
    return os.sched_getaffinity(0)


def test_both_are_on_one_core_while_one_waits(
    process: "subprocess.Popen[bytes]", everywhere: set[int]
) -> None:
    turns = SharedCore(process.pid)
    with turns:
        mine = os.sched_getaffinity(0)
        assert len(mine) == 1
        assert os.sched_getaffinity(process.pid) == mine
    assert os.sched_getaffinity(0) == everywhere
    assert os.sched_getaffinity(process.pid) == mine, "it need not be bound again for the next turn"


def test_what_another_thread_asks_for_goes_anywhere(
    process: "subprocess.Popen[bytes]", everywhere: set[int]
) -> None:
    """New policies are tried beside decisions: on the core of those, both took longer."""
    turns = SharedCore(process.pid)

    def ask() -> None:
        with turns:
            found.append(os.sched_getaffinity(0))
            found.append(os.sched_getaffinity(process.pid))

    found: list[set[int]] = []
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == [everywhere, everywhere]


def test_the_process_follows_to_another_core(
    process: "subprocess.Popen[bytes]", everywhere: set[int]
) -> None:
    turns = SharedCore(process.pid)
    for core in sorted(everywhere):
        os.sched_setaffinity(0, {core})
        try:
            with turns:
                assert os.sched_getaffinity(process.pid) == {core}
            assert os.sched_getaffinity(0) == {core}, "as it was, not as it was at first"
        finally:
            os.sched_setaffinity(0, everywhere)


def test_who_works_beside_is_let_go(
    process: "subprocess.Popen[bytes]", everywhere: set[int]
) -> None:
    turns = SharedCore(process.pid)
    turns.part()
    with turns:
        pass
    turns.part()
    assert os.sched_getaffinity(process.pid) == everywhere
    with turns:
        assert len(os.sched_getaffinity(process.pid)) == 1, "and bound again for the next turn"


def test_who_is_busy_too_is_kept_off_the_core(
    process: "subprocess.Popen[bytes]", everywhere: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = SharedCore(process.pid)
    for core in sorted(everywhere) if len(everywhere) > 1 else ():
        monkeypatch.setattr(shared_core, "_current_core", lambda core=core: core)
        turns.keep_off()
        assert os.sched_getaffinity(process.pid) == everywhere - {core}
        with turns:
            assert os.sched_getaffinity(process.pid) == {core}, "and back to take turns"
    turns.keep_off()
    turns.part()
    assert os.sched_getaffinity(process.pid) == everywhere


class _Kernel:
    """Linux: everybody runs where he asked to, as far as the container has it; or anywhere."""

    def __init__(self, cores: set[int]) -> None:
        self.container = cores
        self._asked: dict[int, set[int]] = {}

    def get(self, pid: int) -> set[int]:
        return self._asked.get(pid, self.container) & self.container or set(self.container)

    def set(self, pid: int, cores: Iterable[int]) -> None:
        asked = set(cores)
        if not asked & self.container:
            raise OSError(errno.EINVAL, "none of these")
        self._asked[pid] = asked


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> _Kernel:
    kernel = _Kernel({0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_getaffinity", kernel.get)
    monkeypatch.setattr(os, "sched_setaffinity", kernel.set)
    monkeypatch.setattr(shared_core, "_current_core", lambda: min(kernel.get(0)))
    monkeypatch.setattr(shared_core, "_ALL_CORES", range(4))
    return kernel


def test_who_was_bound_follows_the_cores_of_the_container(kernel: _Kernel) -> None:
    """The kubelet takes cores for other pods, and gives them back."""
    turns = SharedCore(7)
    for container in ({0, 1, 2, 3}, {3}, {0, 1, 2, 3}, {0}, {2, 3}, {0, 1, 2, 3}):
        kernel.container = container
        with turns:
            assert len(kernel.get(0)) == 1
        assert kernel.get(0) == container
        turns.part()
        assert kernel.get(7) == container


def test_cores_that_change_in_the_middle_bind_nobody(kernel: _Kernel) -> None:
    turns = SharedCore(7)
    with turns:
        kernel.container = {2, 3}
    kernel.container = {0, 1, 2, 3}
    assert kernel.get(0) == kernel.container


def test_who_is_kept_off_a_core_has_all_the_others(kernel: _Kernel) -> None:
    turns = SharedCore(7)
    turns.keep_off()
    assert kernel.get(7) == {1, 2, 3}
    kernel.set(0, {2, 3})  # the thread was moved
    turns.keep_off()
    assert kernel.get(7) == {3}
    turns.part()
    assert kernel.get(7) == {2, 3}
    kernel.set(0, {2})
    turns.keep_off()  # there is no other
    assert kernel.get(7)
    turns.part()
    assert kernel.get(7)


def test_a_choice_of_cores_is_kept(kernel: _Kernel) -> None:
    turns = SharedCore(7)
    with turns:
        pass
    kernel.set(0, {1, 2})  # taskset
    for _ in range(2):
        with turns:
            pass
        assert kernel.get(0) == {1, 2}
    turns.part()
    assert kernel.get(7) == {1, 2}


def test_an_error_does_not_leave_the_thread_bound(
    process: "subprocess.Popen[bytes]", everywhere: set[int]
) -> None:
    with pytest.raises(TimeoutError), SharedCore(process.pid):
        raise TimeoutError
    assert os.sched_getaffinity(0) == everywhere


def test_a_process_that_is_gone_does_no_harm(
    process: "subprocess.Popen[bytes]", everywhere: set[int]
) -> None:
    process.kill()
    process.wait()
    turns = SharedCore(process.pid)
    with turns:
        pass
    turns.part()
    assert os.sched_getaffinity(0) == everywhere


def test_where_cores_cannot_be_told_nothing_happens(
    process: "subprocess.Popen[bytes]", everywhere: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (None, lambda: -1):
        monkeypatch.setattr(shared_core, "_current_core", answer)
        turns = SharedCore(process.pid)
        with turns:
            assert os.sched_getaffinity(0) == everywhere
            assert os.sched_getaffinity(process.pid) == everywhere
        turns.part()
