"""A log has the objects that a tree of queues is read from, at its start and as they change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from engine.core.kernel.events import Event, QueueObjectChanged, TimePassed
from engine.core.kernel.instructions import Instruction, ReportHeld
from engine.core.kernel.kernel import Kernel
from engine.core.model.pod_group import POD_GROUPS
from engine.recording.log_writer import LogSettings, LogWriter, log_files
from engine.recording.recorder import Recorder
from tests.engine.core.kernel.queue_world import tree_files
from tests.engine.core.kernel.random_life import FILES, RandomLife
from tests.engine.core.kernel.test_turn_queue import DRF
from workbench.replay.decision_log import read_log
from workbench.replay.replay import Outcome, Replayer

KIND: Final = "queues.example.com"
TYPE: Final = {"apiVersion": "example.com/v1", "kind": "Queue"}
OF_OBJECTS: Final = tree_files(DRF, objects=[TYPE])
NAMES: Final = ("a", "b", "c", "d")


def queue(name: str, cpu: int = 0, parent: str = "") -> dict[str, Any]:
    """An object that adds a queue, which may have so many cores; 0: as many as there are."""
    limit = {"limit": {"cpu": 1000 * cpu}} if cpu else {}
    return {**TYPE, "metadata": {"name": name}, "spec": {"parent": parent, "has": limit}}


def tree_of(kernel: Kernel, at: float) -> Mapping[str, Any]:
    """The queues that *kernel* has by the time *at*, with their attributes, and other names."""
    kernel.handle(TimePassed(), at)
    tree = kernel.shares.tree
    return {"aliases": tree.aliases} | {one.path: one.attributes for one in tree.queues.values()}


def replayed(log: Path) -> tuple[list[Outcome], Mapping[str, Any]]:
    """What is decided now, and the tree in the end."""
    replayer = Replayer()
    try:
        found = list(replayer.outcomes(read_log(log)))
        return found, tree_of(replayer.kernel, 1e10)
    finally:
        replayer.close()


class RecordedLife(RandomLife):
    """A random life with a tree of queues from objects that come, change and go, recorded."""

    def __init__(self, seed: int, directory: Path) -> None:
        settings = LogSettings(directory, file_bytes=10_000, files=1000, compress=False)
        self.writer = LogWriter(settings, "test")
        self.recorder: Recorder | None = None  # once there is a clock
        files = {**OF_OBJECTS, **FILES}
        super().__init__(seed, files)
        self.recorder = Recorder(self.writer, self.clock, [POD_GROUPS])
        self.recorder.policies(self.bundle.revision, files)
        self.happenings += [self.queue_comes_or_goes, self.try_some] * 3

    def _shape(self) -> dict[str, Any]:
        found = super()._shape()
        if self.rng.random() < 0.8:
            found["labels"]["queue"] = self.rng.choice((*NAMES, "also-a"))
        return found

    def queue_comes_or_goes(self) -> None:
        name = self.rng.choice(NAMES)
        parent = self.rng.choice(("", "", "", "", *NAMES[: NAMES.index(name)]))
        made = queue(name, self.rng.randrange(6), parent) if self.rng.random() < 0.9 else None
        self.report(QueueObjectChanged(KIND, name, made))

    def report(self, event: Event) -> list[Instruction]:
        instructions = self.kernel.handle(event, self.clock.monotonic())
        if self.recorder is not None:
            self.recorder.handled(event, instructions)
        return self._carry_out(instructions)

    def decide(self) -> list[Instruction]:
        assert self.recorder is not None
        self.recorder.deciding(self.kernel)
        self.is_deciding = True
        instructions = super().decide()
        self.writer.write_waiting()
        return instructions

    def _carry_out(self, instructions: list[Instruction]) -> list[Instruction]:
        if self.recorder is not None and self.is_deciding:
            self.is_deciding = False
            self.recorder.decided(instructions)
        return super()._carry_out(instructions)

    is_deciding = False


@pytest.mark.slow("computes for long")
@pytest.mark.parametrize("seed", range(3))
def test_a_life_with_queues_is_decided_again(tmp_path: Path, seed: int) -> None:
    """From its beginning, and from the last file of the log alone.

    A nomination just before a new file began was not in a replay that came from the file before.
    """
    life = RecordedLife(seed, tmp_path)
    life.live(300)
    want = tree_of(life.kernel, life.clock.monotonic() + 1.0)
    life.writer.write_waiting()
    life.writer.end()
    assert any(isinstance(one, ReportHeld) for one in life.done), "nothing was held"
    files = log_files(tmp_path)
    assert len(files) > 2
    for log, least in ((tmp_path, 10), (files[-1], 0)):
        found, tree = replayed(log)
        assert len(found) >= least
        assert [one for one in found if not one.is_same or one.notes] == []
        assert tree == want
