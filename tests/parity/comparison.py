"""Our answers and the oracle's, side by side.

Owns asking both and telling differences apart by kind; what is compared of one answer is
`workbench.conformance.conformance`'s.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.parity.oracle import Oracle
from workbench.conformance.conformance import Agreement, CaseRunner, Scenario

Plain = dict[str, Any]

# A CaseRunner keeps what it builds for each configuration; it is replaced after this many.
_CONFIGURATIONS = 64
# kube-scheduler breaks ties by chance: before an outcome of ours is called different, the oracle
# is asked this often.
_MANY_RUNS = 256
# And of what depends on the order of a hash map.
_MANY_REPEATS = 64


#: Errors of kube-scheduler that cost a pod its attempt, and for which ours has an answer on
#: purpose; docs/parity.md says why.
ANSWERED_ON_PURPOSE = ('running "NodeVolumeLimits" filter plugin: ',)


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer of ours that is not the oracle's.

    `scenario` is the question with the oracle's answers, cut down to the one pod.
    """

    scenario: Plain
    differences: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The differences without the names and numbers that vary from case to case."""
        return frozenset(kind_of(difference) for difference in self.differences)

    @property
    def subjects(self) -> frozenset[str]:
        """What is wanted and not there, by kind: the same for a case and for what is left of it."""
        wanted = {kind.partition(", got ")[0] for kind in self.kinds}
        sums = {text for text in wanted if text.startswith(("total: ", "best: "))}
        return frozenset(wanted - sums or sums)


@dataclass(slots=True)
class Tally:
    """What came of a number of questions.

    `on_purpose` are known differences that stay. `invalid` are the objects that an API server would
    refuse: faults of the generator.
    """

    matched: int = 0
    on_purpose: int = 0
    unsupported: int = 0
    findings: list[Finding] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)

    @property
    def answers(self) -> int:
        """How many answers were compared."""
        return self.matched + len(self.findings)

    def add(self, other: "Tally") -> None:
        """Add the sums of *other* to these."""
        self.matched += other.matched
        self.on_purpose += other.on_purpose
        self.unsupported += other.unsupported
        self.findings += other.findings
        self.invalid += other.invalid
        self.missing |= other.missing


class Comparison:
    """Asks the oracle and ours."""

    def __init__(self, oracle: Oracle, new_runner: Callable[[], CaseRunner] = CaseRunner) -> None:
        self._oracle = oracle
        self._new_runner = new_runner
        self._runner = new_runner()
        self._seen: set[bytes] = set()

    def compare(self, scenarios: Iterable[Plain]) -> Iterator[Tally]:
        """One tally per scenario, in order."""
        for answered in list(self._oracle.ask(scenarios)):
            tally = self._tally(answered)
            doubtful = [f for f in tally.findings if _may_be_chance(f)]
            if doubtful:
                tally.findings = [f for f in tally.findings if f not in doubtful]
                again = [_asked_often(f.scenario) for f in doubtful]
                for one in list(self._oracle.ask(again)):
                    more = self._tally(one)
                    more.invalid.clear()  # known from the first time
                    tally.add(more)
            yield tally

    def _tally(self, answered: Plain) -> Tally:
        tally = Tally(invalid=[f"{answered['id']}: {text}" for text in answered.get("invalid", ())])
        if "error" in answered:
            tally.findings.append(Finding(answered, (f"the oracle: {answered['error']}",)))
            return tally
        scenario = msgspec.convert(answered, Scenario)
        outcomes = self._runner_for(answered.get("config")).run(scenario)
        for i, outcome in enumerate(outcomes):
            differences = outcome.differences
            if outcome.agreement is Agreement.UNSUPPORTED:
                tally.unsupported += 1
                tally.missing.update(outcome.missing)
            elif outcome.agreement is Agreement.ON_PURPOSE or (
                differences and _is_on_purpose(answered["answers"][i])
            ):
                tally.on_purpose += 1
            elif differences:
                tally.findings.append(Finding(only_pod(answered, i), differences))
            else:
                tally.matched += 1
        return tally

    def _runner_for(self, config: Plain | None) -> CaseRunner:
        key = msgspec.json.encode(config)
        if key not in self._seen and len(self._seen) >= _CONFIGURATIONS:
            self._runner = self._new_runner()
            self._seen.clear()
        self._seen.add(key)
        return self._runner


def only_pod(answered: Plain, i: int) -> Plain:
    """*answered* with one of its incoming pods."""
    return {
        **answered,
        "incoming": [answered["incoming"][i]],
        "answers": [answered["answers"][i]],
    }


def _may_be_chance(finding: Finding) -> bool:
    if any(text.startswith("preemption: ") for text in finding.differences):
        return bool(finding.scenario.get("runs", 0) < _MANY_RUNS)
    return bool(1 < finding.scenario.get("repeats", 1) < _MANY_REPEATS)


def _asked_often(scenario: Plain) -> Plain:
    often = {**scenario, "runs": _MANY_RUNS}
    return often | {"repeats": _MANY_REPEATS} if "repeats" in scenario else often


def kind_of(difference: str) -> str:
    """*difference* without names of nodes and pods, and without numbers."""
    text = re.sub(r"\b[nep]\d\d\b", "X", difference)
    return re.sub(r"-?\d+", "#", text)


def _is_on_purpose(answer: Plain) -> bool:
    if answer.get("error"):
        return str(answer["error"]).startswith(ANSWERED_ON_PURPOSE)
    # A plugin that fails while victims are looked for is no more than text to kube-scheduler.
    return '" filter plugin: ' in str(answer.get("postFilter", ""))
