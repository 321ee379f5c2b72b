"""Faults of the leader election: two leaders, or none."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault

ELECTION: Final = (
    PlantedFault(
        "leader acts after its lease",
        "engine/io/leader_election.py",
        " and self._clock.monotonic() - self._renewed_at < self.settings.renew_deadline\n",
        "\n",
        "A process that was paused binds pods although another one leads.",
    ),
    PlantedFault(
        "lease counts from the answer",
        "engine/io/leader_election.py",
        "        self._renewed_at = asked_at\n",
        "        self._renewed_at = self._clock.monotonic()\n",
        "A process whose renewal was answered late acts after the end of its lease.",
    ),
    PlantedFault(
        "dead leader's lease never ends",
        "engine/io/leader_election.py",
        "        if self._seen is None or self._seen.spec != lease.spec:\n",
        "        if lease is not None:\n",
        "After the leader has died, no standby takes over.",
    ),
    PlantedFault(
        "standby takes a valid lease",
        "engine/io/leader_election.py",
        "return self._seen_at + (seen.spec.lease_duration_seconds or 0)",
        "return self._seen_at + self.settings.retry_period / 2",
        "Standbys take the lease from a leader that is alive.",
    ),
    PlantedFault(
        "lease is written without its version",
        "engine/io/leader_election.py",
        'if key != "managedFields"}',
        'if key not in ("managedFields", "resourceVersion")}',
        "Two standbys take the lease at once, and both lead.",
    ),
    PlantedFault(
        "lease is renewed too late",
        "engine/io/leader_election.py",
        "self._sleep(max(0.0, min(self.settings.retry_period, self._seconds_left)))",
        "self._sleep(self.settings.lease_duration)",
        "The leader changes every few seconds, and nothing is scheduled in between.",
    ),
    PlantedFault(
        "lost race counts as won",
        "engine/io/leader_election.py",
        "            raise _HeldByOther from error  # a race lost; look again at the next try\n",
        "            return\n",
        "Of two processes that start together, both lead.",
    ),
    PlantedFault(
        "lease is not renewed",
        "engine/app/app.py",
        "            self._keeping = self._background.start(elector.keep())\n",
        "",
        "The leader stops to schedule after some seconds, and does not exit.",
    ),
)
