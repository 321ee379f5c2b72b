"""Rolls edits out on a running scheduler, one after the other, and notes what becomes of each.

Owns writing an edit, following it to its end, and what is found out about it. What an edit is comes
from `edits`, the load from `churn`.
"""

import asyncio
import contextlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from devkit.benchmarks import objects
from devkit.benchmarks.bench_reload import binding_answers
from devkit.benchmarks.churn import Churn
from devkit.benchmarks.edits import Edit, Policies, make_edit, plan_of
from devkit.benchmarks.load import create_all
from devkit.benchmarks.measure import until_idle
from devkit.benchmarks.objects import NAMESPACE
from devkit.benchmarks.subjects import Starsched
from devkit.benchmarks.wire import Wire
from engine.policy.bundle import build_bundle
from engine.policy.rollout_config import CanaryStage, ShadowStage
from tests.controlplane import ControlPlane

MAPS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
POLICIES: Final = "starsched-policies"
#: The largest share of the pods of its stages that a bad edit may decide.
MOST_SHARE: Final = 0.05
IN_FORCE, REFUSED, STUCK = "in force", "refused", "stuck"

_POLL: Final = 0.1
_ATTEMPTS: Final = re.compile(r"^scheduler_schedule_attempts_total\{[^}]*\} ([\d.e+]+)$", re.M)


@dataclass(frozen=True)
class Settings:
    """How many edits, under which load, and which stages.

    Attributes:
        edits, bad, seed: Of `edits.plan_of`.
        nodes: In the cluster.
        rate: Pods created per second; as many are deleted.
        lifetime: Seconds that a bound pod stays.
        seconds: The duration of each stage.
        compared: Decisions that the shadow compares at least.
        cores: The share of a core that the shadow may use.
        decisions: Of each arm in each step of the canary, at least.
        patience: Seconds after which an edit counts as stuck.
        minutes: After which no further edit is made; None: all are.
    """

    edits: int = 1000
    bad: float = 0.3
    seed: int = 1
    nodes: int = 80
    rate: float = 100.0
    lifetime: float = 5.0
    seconds: float = 1.0
    compared: int = ShadowStage().compared
    cores: float = 0.5
    decisions: int = 5
    patience: float = 600.0
    minutes: float | None = None

    def stages(self) -> dict[str, object]:
        """The `rollout` of the policies: what the shipped default has, but for these settings."""
        duration = f"{self.seconds:g}s"
        steps = [
            {
                "share": f"{100 * step.share:g}%",
                "duration": duration,
                "decisions": self.decisions,
            }
            for step in CanaryStage().steps
        ]
        return {
            "shadow": {"duration": duration, "compared": self.compared, "cores": self.cores},
            "canary": {"steps": steps},
        }

    def as_shipped(self) -> "Settings":
        """The same, with stages as shipped but for their durations."""
        shadow, canary = ShadowStage(), CanaryStage()
        decisions = canary.steps[0].decisions
        return replace(self, compared=shadow.compared, cores=shadow.cores, decisions=decisions)

    def departures(self) -> list[str]:
        """What differs from the shipped default, in words."""
        shadow, canary = ShadowStage(), CanaryStage()
        longest = max(shadow.duration, *(step.duration for step in canary.steps))
        found = []
        if self.seconds < longest.total_seconds():
            found.append(f"stages last {self.seconds:g} s at least, not 1 and 2 minutes")
        if self.compared != shadow.compared:
            found.append(f"{self.compared} compared decisions instead of {shadow.compared}")
        if self.cores != shadow.cores:
            found.append(f"{self.cores:g} of a core for the shadow instead of {shadow.cores:g}")
        shipped = canary.steps[0].decisions
        if self.decisions != shipped:
            found.append(f"{self.decisions} decisions a step instead of {shipped}")
        return found


@dataclass(slots=True)
class Fate:
    """What became of an edit.

    Attributes:
        outcome: `in force`, `refused` or `stuck`.
        stage: Where it ended, such as `canary 1%`; `in force` if it did not.
        gates: Those that failed.
        decided: Decisions that it made while it was rolled out: of its canary, or all from the
            moment when it was in force.
        decisions: All decisions of that time.
        compared: Decisions that its shadow compared.
        seconds: From its writing to its end.
        why: The verdict, or the reason of the rejection.
        refused_before: Why a good edit was refused when it was written first; "" if it was not.
    """

    number: int
    maker: str
    is_bad: bool
    revision: str
    outcome: str = STUCK
    stage: str = ""
    gates: tuple[str, ...] = ()
    decided: int = 0
    decisions: int = 0
    compared: int = 0
    seconds: float = 0.0
    why: str = ""
    refused_before: str = ""

    @property
    def share(self) -> float:
        """Of all decisions while it was rolled out, those that it made."""
        return self.decided / self.decisions if self.decisions else 0.0

    def problem(self) -> str:
        """What must not be; "" if all is well."""
        named = f"edit {self.number} ({self.maker}, revision {self.revision})"
        if self.outcome == STUCK:
            return f"{named} was not decided about: {self.why}"
        if self.is_bad and self.outcome == IN_FORCE:
            return f"{named} is bad and came into force: {self.why}"
        if self.is_bad and self.share > MOST_SHARE:
            return f"{named} is bad and made {self.decided} of {self.decisions} decisions"
        if not self.is_bad and self.outcome != IN_FORCE:
            return f"{named} is good and was refused at {self.stage}: {self.why}"
        return ""


@dataclass(slots=True)
class Run:
    """A finished run."""

    fates: list[Fate] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    pods: int = 0
    bound: int = 0
    binding_answers: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    peak_mib: float = 0.0
    processes: int = 0


class Roller:
    """Rolls edits out.

    Args:
        plane: Has the ConfigMaps.
        subject: The scheduler.
        http: Its endpoints.
        check: Raises what has ended the load.
        settings: See there.
    """

    def __init__(
        self,
        plane: ControlPlane,
        subject: Starsched,
        http: aiohttp.ClientSession,
        check: Callable[[], None],
        settings: Settings,
    ) -> None:
        self._plane = plane
        self._subject = subject
        self._http = http
        self._check = check
        self._settings = settings

    async def roll_out(self, edit: Edit) -> Fate:
        """Write *edit* and return what became of it."""
        files = edit.policies.files(self._settings.stages())
        bundle = await asyncio.to_thread(build_bundle, files)
        fate = Fate(edit.number, edit.maker, edit.is_bad, bundle.revision)
        before = await self.decisions()
        started = time.monotonic()
        await write_map(self._plane, POLICIES, files)
        by_step: dict[int, int] = {}
        while True:
            await asyncio.sleep(_POLL)
            page = await self._read("/rollout")
            fate.seconds = time.monotonic() - started
            if page["candidate"] == fate.revision:
                _note(fate, page, by_step)
                if page["result"] == "promoted" and page["revision"] == fate.revision:
                    fate.outcome, fate.stage = IN_FORCE, "in force"
                    break
                if page["result"] in ("failed", "aborted"):
                    fate.outcome = REFUSED
                    break
            else:
                rejected = (await self._read("/policies"))["last_rejected"]
                if rejected is not None and rejected["revision"] == fate.revision:
                    fate.outcome, fate.stage = REFUSED, rejected["stage"]
                    fate.why = rejected["note"]
                    break
            if fate.seconds > self._settings.patience:
                break
        fate.decided, fate.decisions = sum(by_step.values()), await self.decisions() - before
        return fate

    async def settle(self, edit: Edit) -> tuple[Edit, Fate]:
        """Roll *edit* out, twice if it is good and refused; returns what was written last.

        Gates judge samples: now and then chance looks like harm, and people try again.
        """
        fate = await self.roll_out(edit)
        if edit.is_bad or fate.outcome != REFUSED:
            return edit, fate
        again = edit.again()
        return again, replace(await self.roll_out(again), refused_before=fate.why)

    async def force(self, policies: Policies) -> None:
        """Put *policies* in force without stages: something bad is in force."""
        control = f"{POLICIES}-rollout"
        files = policies.files(self._settings.stages())
        revision = (await asyncio.to_thread(build_bundle, files)).revision
        await write_map(self._plane, control, {"mode": "at-once"})
        await write_map(self._plane, POLICIES, files)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.patience):
                while True:
                    await asyncio.sleep(_POLL)
                    if await self.in_force() == revision:
                        break
        await write_map(self._plane, control, {"mode": "staged"})

    async def in_force(self) -> str:
        """The revision in force."""
        page = await self._read("/rollout")
        return str(page["revision"])

    async def decisions(self) -> int:
        """Decisions since the scheduler started."""
        async with self._http.get("/metrics") as answer:
            return attempts(await answer.text())

    async def _read(self, path: str) -> Any:
        self._subject.check_alive()
        self._check()
        async with self._http.get(path) as answer:
            return msgspec.json.decode(await answer.read())


def attempts(metrics: str) -> int:
    """The decisions that a scheduler's metrics count."""
    return int(sum(float(value) for value in _ATTEMPTS.findall(metrics)))


def _note(fate: Fate, page: Mapping[str, Any], by_step: dict[int, int]) -> None:
    """Take over what *page* says of the stage that the edit is in, or has ended in."""
    stages = page["stages"]
    at = [n for n, one in enumerate(stages) if one["state"] in ("now", "paused", "failed")]
    if page["shadow"] is not None:
        fate.compared = page["shadow"]["compared"]
    if not at:
        return
    stage = stages[at[0]]
    fate.stage = stage["name"] + (f" {100 * stage['share']:g}%" if stage["share"] else "")
    if page["canary"] is not None and stage["name"] == "canary":
        by_step[at[0]] = page["canary"]["decisions"]
    if (verdict := page["verdict"]) is not None:
        fate.why = verdict["why"]
        fate.gates = tuple(g["name"] for g in verdict["gates"] if g["verdict"] == "fail")


async def write_map(plane: ControlPlane, name: str, data: Mapping[str, str]) -> None:
    """Create the ConfigMap, or replace what it holds."""
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": dict(data),
    }
    found = await asyncio.to_thread(plane.request, "GET", MAPS)
    names = {item["metadata"]["name"] for item in found["items"]}
    method, path = ("PUT", f"{MAPS}/{name}") if name in names else ("POST", MAPS)
    await asyncio.to_thread(plane.request, method, path, body)


async def run(
    settings: Settings,
    progress: Callable[[str, int, int], None] = lambda step, done, total: None,
    on_fate: Callable[[Fate], None] = lambda fate: None,
) -> Run:
    """Roll all edits out under load, and check what is left."""
    with (
        ControlPlane() as plane,
        tempfile.TemporaryDirectory(prefix="starsched-bench-") as scratch,
    ):
        async with Wire(plane.endpoint(), in_flight=8) as wire:
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
            await create_all(wire, [space])
            await create_all(wire, (objects.node(n, zones=4) for n in range(settings.nodes)))
            policies = Policies()
            await write_map(plane, POLICIES, policies.files(settings.stages()))
            subject = Starsched(f"configmap:{NAMESPACE}/{POLICIES}")
            try:
                await subject.start(plane, Path(scratch))
                await until_idle(subject)
                return await _under_load(plane, wire, subject, settings, progress, on_fate)
            finally:
                subject.stop()


async def _under_load(
    plane: ControlPlane,
    wire: Wire,
    subject: Starsched,
    settings: Settings,
    progress: Callable[[str, int, int], None],
    on_fate: Callable[[Fate], None],
) -> Run:
    found = Run()
    started = time.monotonic()
    churn = Churn(plane, settings.rate, settings.lifetime, settings.seed)
    policies = Policies()
    timeout = aiohttp.ClientTimeout(total=30)
    async with churn.running(), aiohttp.ClientSession(subject.url, timeout=timeout) as http:
        await asyncio.sleep(settings.lifetime)  # until as many pods go as come
        roller = Roller(plane, subject, http, churn.check, settings)
        for number, maker in enumerate(plan_of(settings.edits, settings.bad, settings.seed), 1):
            if settings.minutes is not None and time.monotonic() - started > 60 * settings.minutes:
                break
            expected = await roller.in_force()
            edit = make_edit(number, maker, policies, settings.seed)
            edit, fate = await roller.settle(edit)
            found.fates.append(fate)
            if fate.outcome == IN_FORCE and edit.is_bad:
                policies = replace(policies, edit=number)
                await roller.force(policies)
            elif fate.outcome == IN_FORCE:
                policies = edit.policies
            elif (now := await roller.in_force()) != expected:
                found.problems.append(
                    f"revision {now} is in force after edit {number}, want {expected}"
                )
            on_fate(fate)
            progress("edits", number, settings.edits)
    usage = subject.usage()
    await asyncio.to_thread(subject.stop)  # nothing moves while we count
    listed = {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in await wire.list_all("/api/v1/pods")
    }
    found.binding_answers = binding_answers((await wire.get("/metrics")).decode())
    found.problems += judge(found.fates)
    found.problems += churn.ledger.problems(listed, found.binding_answers)
    found.pods = len(churn.ledger.created)
    found.bound = len(churn.ledger.sightings.nodes)
    found.seconds = time.monotonic() - started
    found.peak_mib, found.processes = usage.peak_mib, usage.processes
    return found


def judge(fates: Sequence[Fate]) -> list[str]:
    """What must not have become of an edit."""
    return [problem for fate in fates if (problem := fate.problem())]
