"""Compares the answers of the shipped policies with recorded ones of kube-scheduler.

Owns reading recorded scenarios, finding out for which of them all plugins are shipped, and the
comparison. One scenario is one JSON object a line: `nodes`, `pods` that are placed or nominated
for a node, other `objects`, an optional `config`, and for each of the `incoming` pods the recorded
answer. Where kube-scheduler takes the first entry of a hash map, an answer also has `chance`: what
else was seen there.
"""

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from engine.core.framework.behaviors import NO_GATES, RELEASED
from engine.core.model.pod import Pod
from engine.core.queueing.nominator import Nominator
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.cluster_file import unpacked
from engine.files.world import ManifestError, World, pod_of
from engine.lib.deep_json import UNREADABLE
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.profiles import RUNTIME_PLUGINS
from engine.testing.full_decision import FullDecision, decide
from workbench.conformance.deliberate_differences import is_deliberate

Plain = Mapping[str, Any]

_VOLUME_PLUGINS: Final = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
_VOLUME_SOURCES: Final = (
    "persistentVolumeClaim",
    "ephemeral",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "azureDisk",
    "cinder",
    "csi",
    "iscsi",
    "rbd",
)


class ScenarioError(ValueError):
    """A line that is not a scenario; the message starts with `file:line`."""


class Scenario(msgspec.Struct, frozen=True):
    """A cluster, the pods to be decided in it, each alone, and what kube-scheduler answered."""

    id: str
    nodes: list[dict[str, Any]]
    incoming: list[dict[str, Any]]
    answers: list[dict[str, Any]]
    pods: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    config: dict[str, Any] | None = None


class Agreement(enum.Enum):
    """Whether an answer agrees with the recorded one."""

    MATCHED = "matched"
    DIFFERS = "differs"
    UNSUPPORTED = "unsupported"
    #: It differs, and is meant to.
    ON_PURPOSE = "on purpose"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The comparison of one answer.

    `differences` says what differs, one fact a line; `missing` names the plugins that the recorded
    answer needs and that are not shipped.
    """

    scenario: str
    pod: str
    agreement: Agreement
    differences: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def read_scenarios(path: Path) -> Iterator[Scenario]:
    """The scenarios of a file, one a line; blank lines are skipped.

    Raises `ScenarioError` at the first line that is not one, or if there is none, and
    `ClusterFileError` if the file, which may be compressed, cannot be read.
    """
    is_empty = True
    decoder = msgspec.json.Decoder(Scenario)
    for number, line in enumerate(unpacked(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            scenario = decoder.decode(line)
        except UNREADABLE as error:
            raise ScenarioError(f"{path}:{number}: want a scenario: {error}") from error
        if len(scenario.answers) != len(scenario.incoming):
            raise ScenarioError(
                f"{path}:{number}: want one answer per incoming pod, "
                f"got {len(scenario.answers)} for {len(scenario.incoming)}"
            )
        is_empty = False
        yield scenario
    if is_empty:
        raise ScenarioError(f"{path}: want scenarios, one a line, found none")


class CaseRunner:
    """Decides scenarios with the shipped policies and compares the answers.

    They are decided as Kubernetes 1.*minor* does, with the feature gates *gates* on. Schedulers are
    kept by configuration: scenarios that share one share its memo.
    """

    def __init__(self, minor: int = RELEASED, gates: frozenset[str] = NO_GATES) -> None:
        self._minor = minor
        self._gates = gates
        self._schedulers: dict[bytes, tuple[Bundle, Scheduler]] = {}

    def run(self, scenario: Scenario) -> list[Outcome]:
        """One outcome per incoming pod, in order."""
        try:
            bundle, scheduler = self._scheduler(scenario.config)
            placed, nominator = _parted(scenario.pods)
            world = World.from_manifests(
                scenario.nodes, placed, scenario.objects, minor=self._minor, gates=self._gates
            )
        except (PolicyErrors, ManifestError) as error:
            reasons = tuple(str(error).splitlines())
            return [
                Outcome(scenario.id, str(answer.get("pod", "")), Agreement.DIFFERS, reasons)
                for answer in scenario.answers
            ]

        def ask(pod: Pod) -> FullDecision:
            return decide(world, scheduler, pod, nominator)

        return [
            self._compare(scenario, bundle, pod, answer, ask)
            for pod, answer in zip(scenario.incoming, scenario.answers, strict=True)
        ]

    def _scheduler(self, config: Plain | None) -> tuple[Bundle, Scheduler]:
        key = msgspec.json.encode(config)
        found = self._schedulers.get(key)
        if found is None:
            # JSON is YAML: the configuration is read like a user's file.
            files = {} if config is None else {"config.yaml": key.decode()}
            bundle = build_bundle(files, None)
            found = bundle, Scheduler(bundle, InProcessEvaluator(bundle.program))
            self._schedulers[key] = found
        return found

    def _compare(
        self,
        scenario: Scenario,
        bundle: Bundle,
        manifest: Plain,
        answer: Plain,
        ask: Callable[[Pod], FullDecision],
    ) -> Outcome:
        name = str(answer.get("pod", ""))
        shipped = {*bundle.policies, *RUNTIME_PLUGINS}
        missing = sorted(needed_plugins(scenario, manifest, answer) - shipped)
        if missing:
            return Outcome(scenario.id, name, Agreement.UNSUPPORTED, missing=tuple(missing))
        try:
            pod = pod_of(manifest)
            decision = ask(pod)
            differences = tuple(compare(answer, decision, shipped))
            if differences and is_deliberate(answer, decision, manifest, scenario.objects):
                return Outcome(scenario.id, name, Agreement.ON_PURPOSE, differences)
        except ManifestError as error:
            differences = (str(error),)
        except KeyError:
            differences = (f"no profile has the pod's schedulerName `{pod.scheduler_name}`",)
        agreement = Agreement.DIFFERS if differences else Agreement.MATCHED
        return Outcome(scenario.id, name, agreement, differences)


def _parted(pods: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], Nominator]:
    """The pods that are placed, and those that are nominated for a node."""
    placed, nominator = [], Nominator()
    for manifest in pods:
        is_placed = bool((manifest.get("spec") or {}).get("nodeName"))
        if is_placed or not (manifest.get("status") or {}).get("nominatedNodeName"):
            placed.append(manifest)  # with neither, the world refuses it
        else:
            nominator.nominate(pod_of(manifest))
    return placed, nominator


def needed_plugins(scenario: Scenario, manifest: Plain, answer: Plain) -> set[str]:
    """The plugins that are needed for an answer that is comparable with the recorded one.

    Those that the answer names, and those whose input is present even if they accept every node. A
    constant zero row of DynamicResources, which it gives to pods without claims, needs nothing: it
    decides nothing.
    """
    spec = manifest.get("spec") or {}
    needed = {str(rejection["plugin"]) for rejection in (answer.get("rejected") or {}).values()}
    if answer.get("preFilter"):
        needed.add(str(answer["preFilter"]["plugin"]))
    for row in (answer.get("scores") or {}).values():
        needed.update(p for p, score in row.items() if not _is_idle(p, score, spec))
    if spec.get("resourceClaims"):
        needed.add("DynamicResources")
    if spec.get("topologySpreadConstraints"):
        needed.add("PodTopologySpread")
    if _has_pod_affinity(spec) or any(
        _has_pod_affinity(p.get("spec") or {}) for p in scenario.pods
    ):
        needed.add("InterPodAffinity")
    if any(v.get(source) for v in spec.get("volumes") or () for source in _VOLUME_SOURCES):
        needed.update(_VOLUME_PLUGINS)
    if "preemption" in answer or "postFilter" in answer:
        needed.add("DefaultPreemption")
    return needed


def compare(answer: Plain, decision: FullDecision, shipped: set[str]) -> Iterator[str]:
    """The differences between the recorded *answer* and *decision*, one a line.

    The order of the reasons of one rejection is not compared: kube-scheduler takes scalar
    resources from a Go map, so its order changes from run to run. Where a plugin of kube-scheduler
    failed, all that counts is that ours failed too.
    """
    if answer.get("error"):
        if not decision.failures:
            yield f"want the error `{answer['error']}`, got an answer"
        return
    for failure in decision.failures:
        yield f"a policy failed: {failure}"
    want_status = _status(answer.get("preFilter"))
    got_status = _status(_plain(decision.pre_filter))
    if got_status != want_status:
        yield f"pre-filter: want {want_status}, got {got_status}"
    want_nodes, got_nodes = _names(answer.get("preFilterNodes")), _names(decision.pre_filter_nodes)
    if got_nodes != want_nodes:
        yield f"nodes left by the pre-filters: want {want_nodes}, got {got_nodes}"
    plain = decision.to_plain()
    chance = answer.get("chance") or {}
    want_rejected = answer.get("rejected") or {}
    others = chance.get("rejected") or {}
    for node in sorted({*want_rejected, *plain["rejected"]}):
        want, got = _status(want_rejected.get(node)), _status(plain["rejected"].get(node))
        if got != want and got not in map(_status, others.get(node, ())):
            yield f"node {node}: want {want}, got {got}"
    want_scores = answer.get("scores") or {}
    other_scores = chance.get("scores") or {}
    for node in sorted({*want_scores, *plain["scores"]}):
        if (node in want_scores) != (node in plain["scores"]):
            side = "want a score, got none" if node in want_scores else "want no score, got one"
            yield f"node {node}: {side}"
            continue
        want_row, got_row = want_scores[node], plain["scores"][node]
        for plugin in sorted({*want_row, *got_row}):
            if plugin not in shipped and plugin not in got_row:
                continue  # an idle row: `needed_plugins` lets no other through
            seen = (want_row.get(plugin), *other_scores.get(node, {}).get(plugin, ()))
            if got_row.get(plugin) not in seen:
                yield (
                    f"node {node}: score of {plugin}: "
                    f"want {want_row.get(plugin)}, got {got_row.get(plugin)}"
                )
    if ("preemption" in answer or "postFilter" in answer) and not _has_lost_state(answer):
        yield from _compare_post_filter(answer, plain)
    # Where chance chose scores, the sums are those of the scores that it would bring here.
    sums = _sums(plain["scores"]) if other_scores else answer
    for field in ("total", "best"):
        if (plain[field] or None) != (sums.get(field) or None):
            yield f"{field}: want {sums.get(field)}, got {plain[field]}"


def _has_lost_state(answer: Plain) -> bool:
    """True if a pre-filter gave up early, so that a post-filter did not find its own state.

    kube-scheduler then says so in place of what preemption would say (docs/parity.md).
    """
    return "preFilter" in answer and answer.get("postFilter") == "not found"


def _compare_post_filter(answer: Plain, plain: Plain) -> Iterator[str]:
    """The differences about preemption. If several outcomes are recorded, any is right."""
    chance = answer.get("chance") or {}
    if plain["post_filter"] not in (answer.get("postFilter", ""), *chance.get("postFilter", ())):
        yield f"post-filter: want `{answer.get('postFilter', '')}`, got `{plain['post_filter']}`"
    outcomes = answer.get("preemption") or {}
    others = chance.get("preemption") or {}
    # The victims of an outcome are recorded sorted by name.
    got = {node: sorted(victims) for node, victims in plain["preemption"].items()}
    if not outcomes and not got:
        return
    seen = [{n: sorted(v)} for n, first in outcomes.items() for v in (first, *others.get(n, ()))]
    if got not in seen:
        yield f"preemption: want one of {seen if others else dict(outcomes)}, got {dict(got)}"


def _sums(scores: Mapping[str, Mapping[str, int]]) -> Plain:
    total = {node: sum(row.values()) for node, row in scores.items()}
    highest = max(total.values(), default=0)
    return {"total": total, "best": sorted(n for n, score in total.items() if score == highest)}


def _is_idle(plugin: str, score: int, spec: Plain) -> bool:
    return plugin == "DynamicResources" and score == 0 and not spec.get("resourceClaims")


def _has_pod_affinity(spec: Plain) -> bool:
    affinity = spec.get("affinity") or {}
    return bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity"))


def _plain(value: Any) -> Any:
    return None if value is None else msgspec.to_builtins(value)


def _status(rejection: Plain | None) -> str:
    if rejection is None:
        return "no rejection"
    reasons = ", ".join(sorted(rejection["reasons"]))
    return f"rejected by {rejection['plugin']} ({rejection['code']}: {reasons})"


def _names(names: Sequence[str] | None) -> str:
    return "all" if names is None else ", ".join(sorted(names))
