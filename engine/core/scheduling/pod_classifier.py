"""Puts pods for which every hook is given the same into one class.

Owns the questions that are asked once per pod class: pre-filters, pre-scores, counters; and the
projections that every per-node hook of the class is asked with.

    pod --reads of all hooks--> key
    key ------> kind         the counters that its pre-filters and pre-scores are given
    kind, which of these are empty ------> prepared     what pre-filters and pre-scores answered
    prepared, reads of the hooks that still run ------> class key ------> class

Each step joins more pods. The key distinguishes all that any hook can; it is all that is computed
for a pod whose kind is known. Pods of one kind ask for the same counters, of which pre-filters and
pre-scores see only if they are empty: so what is prepared changes rarely, while pods come and go.
And what no later hook reads, since these are skipped, does not tell classes apart: a label that
only a spread constraint reads splits no pods without such a constraint.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from engine.core.caching.counters import Counters
from engine.core.caching.own_terms import own_terms
from engine.core.caching.snapshot import Snapshot
from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.framework.reasons import left_out_token, legal_token
from engine.core.framework.status import Code, Status
from engine.core.model.pod import Pod
from engine.core.model.pod_group import PodGroupState
from engine.core.scheduling.counted import CountedHook, CounterUse, EligibleNodes
from engine.core.scheduling.hook_use import HookUse, PreFiltered, Prepared
from engine.core.scheduling.node_columns import NodeColumns
from engine.core.scheduling.pod_class import PodClass
from engine.core.scheduling.pod_fields import BoundedMemo, Key, PodReader
from engine.core.scheduling.profile_reads import (
    GIVEN_COUNTS,
    PER_NODE,
    HookReads,
    ProfileReads,
    reads_of,
)
from engine.policy.bundle import Bundle
from engine.policy.evaluator import PolicyFailure
from engine.policy.projections import NodeColumn, Projector, WantedColumn
from engine.policy.verdicts import VerdictMemo
from engine.policy.view_fields import Wanted

_Counts = Mapping[tuple[str, str], bytes | PolicyFailure]
"""The counters that a policy's hook is given, or why there are none."""

_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class _Kind:
    """Pods that are alike in what hooks read.

    `asked` are the counters that their pre-filters and pre-scores read, by policy
    and hook, `uses` all of them; `known` is what was prepared for them, and the key of their class,
    by which are empty.
    """

    asked: Mapping[tuple[str, str], Sequence[CounterUse] | PolicyFailure]
    uses: Sequence[CounterUse]
    known: dict[tuple[bool, ...], tuple[Prepared, Key]] = field(default_factory=dict)

    def given(self, empty: Sequence[bool]) -> dict[tuple[str, str], bytes | PolicyFailure]:
        """What the hooks are given if *empty* says which of `uses` are."""
        flags = iter(empty)
        return {
            hook: uses
            if isinstance(uses, PolicyFailure)
            else _encode([{"is_empty": next(flags)} for _ in uses])
            for hook, uses in self.asked.items()
        }


def _names_key(wanted: Iterable[Wanted], pod: Pod, snapshot: Snapshot) -> bytes:
    names = _names(wanted, pod, snapshot)
    return _encode(sorted(names)) if names else b""


def _names(wanted: Iterable[Wanted], pod: Pod, snapshot: Snapshot) -> frozenset[str]:
    """What *pod* wants of *wanted*, besides what is always given."""
    return frozenset(
        name for one in wanted for name in one.by(pod, snapshot) if name not in one.always
    )


class PodClassifier:
    """Puts pods into classes for one bundle."""

    def __init__(
        self, bundle: Bundle, memo: VerdictMemo, columns: NodeColumns, counters: Counters
    ) -> None:
        self._memo = memo
        self._columns = columns
        self._counters = counters
        self._policies, self._profiles = reads_of(bundle)
        self._reader = PodReader()
        self._kinds: BoundedMemo[_Kind] = BoundedMemo()
        self._prepared: BoundedMemo[Prepared] = BoundedMemo()
        self.score_order: dict[str, int] = {}
        for profile in bundle.profiles:
            for hook in PER_NODE:
                for place, enabled in enumerate(profile.at(hook)):
                    self._column(enabled, hook, frozenset())
                    if hook != "filter":
                        self.score_order.setdefault(enabled.policy, place)

    def key(self, profile: Profile, pod: Pod, snapshot: Snapshot) -> Key:
        """Everything that the hooks of a class are given of *pod*; equal for pods that are alike.

        The class is wider: see `prepare`.
        """
        reads = self._reads(profile)
        # Which terms of other pods match a pod depends on these, and which pods its own match.
        labels = self._counters.term_labels(pod) if reads.is_counting else None
        return (
            profile.scheduler_name,
            _encode(labels) if labels else b"",
            own_terms(pod).name if reads.is_counting else b"",
            *self._reader.read(reads.everything, pod, snapshot),
            _names_key(reads.wanted, pod, snapshot),
        )

    def _reads(self, profile: Profile) -> ProfileReads:
        reads = self._profiles.get(profile.scheduler_name)
        if reads is None:  # a part of a profile, made for an explanation
            reads = ProfileReads(profile, self._policies)
            self._profiles[profile.scheduler_name] = reads
        return reads

    def positions(self, profile: Profile) -> Mapping[str, int]:
        """The place of each policy and runtime plugin in the order of the filters."""
        return self._reads(profile).positions

    # --- asking about a pod -----------------------------------------------------------------

    def ask(
        self,
        enabled: EnabledPolicy,
        hook: str,
        pod: Pod,
        facts: Snapshot,
        group: PodGroupState | None = None,
    ) -> Any:
        """The verdict of a per-pod hook, or a `PolicyFailure`."""
        return self._memo.single(*self._question(enabled, hook, pod, facts, None, group))

    def ask_each(
        self, enabled: EnabledPolicy, hook: str, pods: Sequence[Pod], facts: Snapshot
    ) -> list[Any]:
        """The same of each of *pods*, in one round trip."""
        return self._memo.singles([self._question(enabled, hook, pod, facts, None) for pod in pods])

    def _question(
        self,
        enabled: EnabledPolicy,
        hook: str,
        pod: Pod,
        facts: Snapshot,
        state: bytes | None,
        group: PodGroupState | None = None,
        counts: bytes | None = None,
    ) -> tuple[int, str, bytes, bytes]:
        projected = self.projector(enabled, hook, "pod").project(pod, facts)
        extra = self._extra(enabled, hook, facts, state, group, counts)
        return enabled.instance, hook, projected, extra

    # --- making a class ---------------------------------------------------------------------

    def counts(self, profile: Profile) -> bool:
        """True if a hook of the profile is given counters."""
        return self._reads(profile).is_counting

    def prepare(
        self,
        alike: Key,
        profile: Profile,
        pod: Pod,
        snapshot: Snapshot,
        are_empty: Callable[[Sequence[CounterUse]], tuple[bool, ...]],
    ) -> tuple[Prepared, Key]:
        """What the pre-filters and pre-scores say of *pod*, and the key of its class, as `key`.

        They are asked once for pods that have the same in what they read, and of whose counters the
        same are empty. The class has what is read after them by the hooks that are not skipped:
        pods that differ in a label that only counters read are in one class if nothing is counted.

        Args:
            alike: The `key` of *pod*.
            are_empty: Says which counters are.
        """
        kind = self._kind_of(alike, profile, pod, snapshot)
        empty = are_empty(kind.uses)
        known = kind.known.get(empty)
        if known is None:
            prepared = self._prepare_once(profile, pod, snapshot, kind.given(empty))
            known = prepared, self._class_key(alike, profile, pod, snapshot, prepared)
            if prepared.name is not None:
                kind.known[empty] = known
        return known

    def asked_before_nodes(
        self, profile: Profile, pod: Pod, snapshot: Snapshot
    ) -> Sequence[CounterUse]:
        """The counters that pre-filters and pre-scores read: they see only whether one is empty."""
        return self._kind_of(self.key(profile, pod, snapshot), profile, pod, snapshot).uses

    def _kind_of(self, alike: Key, profile: Profile, pod: Pod, snapshot: Snapshot) -> _Kind:
        kind = self._kinds.get(alike)
        if kind is None:
            kind = self._kind(profile, pod, snapshot)
            if not any(isinstance(uses, PolicyFailure) for uses in kind.asked.values()):
                self._kinds.put(alike, kind, sum(use.nbytes for use in kind.uses))
        return kind

    def _prepare_once(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, counts: _Counts
    ) -> Prepared:
        name = profile.scheduler_name
        fields = self._reads(profile).before_nodes
        key = (name, *self._reader.read(fields, pod, snapshot), *counts.items())
        prepared = self._prepared.get(key)
        if prepared is None:
            prepared = self._prepare(profile, pod, snapshot, counts)
            if prepared.name is not None:
                self._prepared.put(key, prepared)
        return prepared

    def _class_key(
        self,
        alike: Key,
        profile: Profile,
        pod: Pod,
        snapshot: Snapshot,
        prepared: Prepared,
    ) -> Key:
        reads = self._reads(profile)
        fields = reads.of_class(prepared)
        if fields is None:
            return (prepared.name, *alike)
        read = self._reader.read(fields, pod, snapshot)
        names = _names_key(reads.wanted, pod, snapshot)
        return (prepared.name, profile.scheduler_name, *read, names)

    def _kind(self, profile: Profile, pod: Pod, snapshot: Snapshot) -> _Kind:
        asked: dict[tuple[str, str], Sequence[CounterUse] | PolicyFailure] = {}
        uses: list[CounterUse] = []
        for before, hook in GIVEN_COUNTS:
            for e in profile.at(before):
                if not self._is_counted(e, before):
                    continue
                specs = self._specs(e, hook, pod, snapshot)
                if isinstance(specs, PolicyFailure):
                    asked[e.policy, before] = specs
                    continue
                own = [self._counter(e, spec, pod, snapshot, None) for spec in specs]
                asked[e.policy, before] = own
                uses += own
        return _Kind(asked, uses)

    def _prepare(self, profile: Profile, pod: Pod, snapshot: Snapshot, counts: _Counts) -> Prepared:
        # 1. Pre-filters: reject, narrow the nodes, hand state on.
        pre, skipped, states = self._pre_filter(profile, pod, snapshot, counts)
        if pre.failure is not None:
            return Prepared(pre, skipped, states, {}, frozenset(), None)
        # 2. Pre-scores. They see no nodes, so asking now gives the same answer as asking later.
        pre_scored = {}
        if pre.rejection is None:
            pre_scored = self._pre_score(profile, pod, snapshot, states, counts)
        skipped_scores = frozenset(
            policy
            for policy, verdict in pre_scored.items()
            if isinstance(verdict, PolicyFailure) or (verdict is not None and verdict[0] == "skip")
        )
        name = None
        if not any(isinstance(verdict, PolicyFailure) for verdict in pre_scored.values()):
            said = _encode((pre, sorted(skipped), states, pre_scored))
            name = hashlib.blake2b(said, digest_size=16).digest()
        return Prepared(pre, skipped, states, pre_scored, skipped_scores, name)

    def classify(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, prepared: Prepared
    ) -> PodClass:
        """The class of *pod*, with nothing known of the nodes yet."""
        # 1. What pre-filters and pre-scores said.
        pre, skipped, states = prepared.pre, prepared.skipped, prepared.states
        if pre.rejection is not None or pre.failure is not None:
            return PodClass(pre)
        skipped_scores = prepared.skipped_scores
        failures = []
        score_states = dict(states)
        for policy, verdict in prepared.pre_scored.items():
            if isinstance(verdict, PolicyFailure):
                failures.append(verdict)
            elif verdict is not None and policy not in skipped_scores:
                score_states[policy] = _encode(verdict[1])
        # 2. The per-node hooks, with what they are given for this class.
        made = PodClass(pre, pre_score_failures=tuple(failures))
        filters: list[HookUse] = []
        counted_filters: list[CountedHook] = []
        positions = self.positions(profile)
        for e in profile.at("filter"):
            if e.policy in skipped:
                continue
            place = positions[e.policy]
            if self._is_counted(e, "filter"):
                counted = self._counted(e, "filter", pod, snapshot, states, place)
                if isinstance(counted, PolicyFailure):
                    return PodClass(PreFiltered(failure=counted))
                counted_filters.append(counted)
            else:
                filters.append(self.use(e, "filter", pod, snapshot, states.get(e.policy), place))
        scores: list[HookUse] = []
        counted_scores: list[CountedHook] = []
        for e in profile.at("score"):
            if e.policy in skipped_scores:
                continue
            if self._is_counted(e, "score"):
                counted = self._counted(e, "score", pod, snapshot, score_states)
                if isinstance(counted, PolicyFailure):
                    failures.append(counted)
                else:
                    counted_scores.append(counted)
            else:
                scores.append(self.use(e, "score", pod, snapshot, score_states.get(e.policy)))
        made.filters, made.counted_filters = filters, counted_filters
        made.last_filter = max((use.position for use in filters), default=-1)
        made.scores, made.counted_scores = scores, counted_scores
        made.whole_scores = [
            self.use(e, "score_all", pod, snapshot, score_states.get(e.policy))
            for e in profile.at("score_all")
            if e.policy not in skipped_scores
        ]
        made.pre_score_failures = tuple(failures)
        columns = {use.column: None for use in (*filters, *scores, *made.whole_scores)}
        made.wanted = [column for column in columns if isinstance(column, WantedColumn)]
        return made

    def _pre_filter(
        self, profile: Profile, pod: Pod, snapshot: Snapshot, counts: _Counts
    ) -> tuple[PreFiltered, frozenset[str], dict[str, bytes]]:
        """What the pre-filters said, the policies whose filters are skipped, and the states."""
        enabled = profile.at("pre_filter")
        verdicts = self._answers(enabled, "pre_filter", pod, snapshot, {}, counts)
        rejection: Status | None = None
        subset: set[str] | None = None
        narrowed: list[str] = []
        skipped: set[str] = set()
        states: dict[str, bytes] = {}
        for e, verdict in zip(enabled, verdicts, strict=True):
            if isinstance(verdict, PolicyFailure):
                return PreFiltered(failure=verdict), frozenset(), {}
            if verdict is None:
                continue
            kind, *rest = verdict
            if kind == "skip":
                skipped.add(e.policy)
            elif kind == "state":
                states[e.policy] = _encode(rest[0])
            elif kind == "only":
                narrowed.append(e.policy)
                names = set(rest[0])
                subset = names if subset is None else subset & names
                if len(rest) > 1 and rest[1] is not None:
                    states[e.policy] = _encode(rest[1])
            elif kind == "reject":
                code = Code.UNRESOLVABLE if rest[0] == "u" else Code.UNSCHEDULABLE
                token = legal_token(rest[2]) if len(rest) > 2 else ""
                status = Status(code, tuple(rest[1]), e.policy, token)
                if code is Code.UNRESOLVABLE:
                    return PreFiltered(status), frozenset(), {}
                # Later pre-filters still count: one of them may say that nothing can help.
                rejection = rejection or status
        if rejection is not None:
            return PreFiltered(rejection), frozenset(), {}
        if subset is not None and not subset:
            text = (
                f"node(s) didn't satisfy plugin {narrowed[0]}"
                if len(narrowed) == 1
                else f"node(s) didn't satisfy plugin(s) [{' '.join(narrowed)}] simultaneously"
            )
            token = left_out_token(narrowed[0])
            status = Status(Code.UNRESOLVABLE, (text,), narrowed[0], token)
            return PreFiltered(status, narrowed_by=tuple(narrowed)), frozenset(), {}
        pre = PreFiltered(
            subset=None if subset is None else tuple(sorted(subset)),
            narrowed_by=tuple(narrowed),
        )
        return pre, frozenset(skipped), states

    def _pre_score(
        self,
        profile: Profile,
        pod: Pod,
        snapshot: Snapshot,
        states: Mapping[str, bytes],
        counts: _Counts,
    ) -> dict[str, Any]:
        """The verdict of each pre-score by policy."""
        enabled = profile.at("pre_score")
        verdicts = self._answers(enabled, "pre_score", pod, snapshot, states, counts)
        return {e.policy: verdict for e, verdict in zip(enabled, verdicts, strict=True)}

    def _answers(
        self,
        enabled: Sequence[EnabledPolicy],
        hook: str,
        pod: Pod,
        snapshot: Snapshot,
        states: Mapping[str, bytes],
        counts: _Counts,
    ) -> list[Any]:
        """What each policy says in a per-pod hook; a failure for one whose counters failed."""
        given = [counts.get((e.policy, hook)) for e in enabled]
        answers = iter(
            self._memo.singles(
                [
                    self._question(e, hook, pod, snapshot, states.get(e.policy), counts=each)
                    for e, each in zip(enabled, given, strict=True)
                    if not isinstance(each, PolicyFailure)
                ]
            )
        )
        return [each if isinstance(each, PolicyFailure) else next(answers) for each in given]

    def use(
        self,
        enabled: EnabledPolicy,
        hook: str,
        pod: Pod,
        snapshot: Snapshot,
        state: bytes | None,
        position: int = 0,
    ) -> HookUse:
        """A per-node hook as it is asked for *pod*."""
        of_policy = self._policies[enabled.policy]
        reads = of_policy.hooks[hook]
        names = _names(reads.wanted, pod, snapshot)
        return HookUse(
            enabled,
            hook,
            self._column(enabled, hook, names),
            reads.projector("pod").project(pod, snapshot),
            self._extra(enabled, hook, snapshot, state),
            position,
            of_policy.normalizes,
            of_policy.reads_count,
        )

    # --- counters ---------------------------------------------------------------------------

    def _is_counted(self, enabled: EnabledPolicy, hook: str) -> bool:
        return self._of(enabled, hook).is_counted

    def _counted(
        self,
        enabled: EnabledPolicy,
        hook: str,
        pod: Pod,
        snapshot: Snapshot,
        states: Mapping[str, bytes],
        position: int = 0,
    ) -> CountedHook | PolicyFailure:
        specs = self._specs(enabled, hook, pod, snapshot)
        if isinstance(specs, PolicyFailure):
            return specs
        state = states.get(enabled.policy)
        plain = self.use(enabled, hook, pod, snapshot, state, position)
        return CountedHook(
            enabled,
            hook,
            plain.column,
            plain.pod,
            plain.extra,
            tuple(self._counter(enabled, spec, pod, snapshot, state) for spec in specs),
            self._of(enabled, hook).counter_fields,
            position,
            plain.normalizes,
            plain.reads_count,
        )

    def _specs(
        self, enabled: EnabledPolicy, hook: str, pod: Pod, snapshot: Snapshot
    ) -> list[list[dict[str, Any]]] | PolicyFailure:
        """The parts of each counter that the policy wants for *hook*."""
        if "counters" not in self._policies[enabled.policy].hooks:
            return []
        answer = self.ask(enabled, "counters", pod, snapshot)
        if isinstance(answer, PolicyFailure):
            return answer
        keys = [tuple(each) for each in answer["keys"]]
        return [
            [part | {"keys": keys[part["keys"]]} for part in spec] for spec in answer.get(hook, ())
        ]

    def _counter(
        self,
        enabled: EnabledPolicy,
        parts: Sequence[dict[str, Any]],
        pod: Pod,
        snapshot: Snapshot,
        state: bytes | None,
    ) -> CounterUse:
        eligible: EligibleNodes | None = None
        own: list[dict[str, Any]] = []
        for part in parts:
            if part["kind"] == "matches":
                part["pod"] = {"namespace": pod.namespace, "terms": own_terms(pod).name.hex()}
                own.append(part)
            if part["kind"] == "terms":
                # Which terms match depends on the incoming pod; pods that match alike share one.
                labels = self._counters.term_labels(pod)
                part["pod"] = {"namespace": pod.namespace, "labels": labels}
            name = part.get("among")
            if name is not None:
                use = self.use(enabled, name, pod, snapshot, state)
                eligible = EligibleNodes(enabled, name, use.column, use.pod, use.extra)
        # Counters over the same pods but other nodes must not share their sums.
        which = "" if eligible is None else f"{enabled.instance} {eligible.hook} "
        text = which.encode() + (eligible.pod if eligible is not None else b"") + _encode(parts)
        # Pods decide how long that is, and counters outlive them.
        key = hashlib.blake2b(text, digest_size=16).digest()
        for part in own:
            part["own"] = own_terms(pod)
        return CounterUse(key, parts, eligible)

    # --- what hooks are given ---------------------------------------------------------------

    def _column(self, enabled: EnabledPolicy, hook: str, names: frozenset[str]) -> NodeColumn:
        """The nodes as *hook* sees them for pods that want *names*, if it is asked for a class."""
        reads = self._of(enabled, hook)
        return self._columns.column(reads.reads.node, names if reads.wanted else None)

    def _of(self, enabled: EnabledPolicy, hook: str) -> HookReads:
        return self._policies[enabled.policy].hooks[hook]

    def keeps_pods(self, enabled: EnabledPolicy) -> bool:
        """True if the policy's `victim_key` may say of pods that they are never evicted."""
        return self._of(enabled, "victim_key").reads.keeps_pods

    def projector(self, enabled: EnabledPolicy, hook: str, view: str) -> Projector:
        """What makes the JSON that *hook* is given of a pod, node or cluster."""
        return self._of(enabled, hook).projector(view)

    def _extra(
        self,
        enabled: EnabledPolicy,
        hook: str,
        facts: Snapshot,
        state: bytes | None,
        group: PodGroupState | None = None,
        counts: bytes | None = None,
    ) -> bytes:
        """The JSON of the parameters other than pod and node that the hook names.

        *counts* are those of a hook that is asked about the pod alone.
        """
        params = self._of(enabled, hook).reads.params
        if counts is None and not ("state" in params or "cluster" in params or "group" in params):
            return b"{}"
        parts = [] if counts is None else [b'"counts":' + counts]
        if "state" in params:
            parts.append(b'"state":' + (state or b"null"))
        if "cluster" in params:
            cluster = self.projector(enabled, hook, "cluster").project(facts, facts)
            parts.append(b'"cluster":' + cluster)
        if group is not None and "group" in params:
            shown = self.projector(enabled, hook, "group").project(group, facts)
            parts.append(b'"group":' + shown)
        return b"{" + b",".join(parts) + b"}"
