"""Answers the questions of a test's assertions.

Owns the schedulers that answer: one with only the policy that the test belongs to, for each set of
arguments, and one with the bundle's profiles. They are those of production; only the world around
them is made up.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from engine.core.caching.snapshot import Snapshot
from engine.core.framework.behaviors import RELEASED
from engine.core.framework.profile import EnabledPolicy, Profile
from engine.core.kernel.pod_groups import PodGroups
from engine.core.model.pod import Pod
from engine.core.model.pod_group import PodGroupState
from engine.core.scheduling.pod_hooks import GroupSource
from engine.core.scheduling.reclaim_circles import SmallPod, victims_for
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.sharing.tree import GivenQueue, build_tree
from engine.files.world import World, pod_of
from engine.policy.arguments import ATTRIBUTES, declaration, read_arguments
from engine.policy.bundle import Bundle, Policy
from engine.policy.documents import read_documents
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator, Instance, PolicyFailure, Program
from engine.policy.file_names import TEST_SUFFIX
from engine.policy.queue_tree import policy_alone
from engine.policy.sandbox.modules import Natives
from engine.testing.full_decision import FullDecision, decide
from engine.testing.properties import order_matters, unknown_labels_matter, worse_with_more_capacity


class ArgumentsError(Exception):
    """The `args` of an assertion are not what the policy declares."""


class Answers:
    """Answers the questions of assertions with schedulers made for them.

    `file` is the test file that asks: its assertions decide with the policy of the same stem unless
    they name a profile. *minor* is the version of Kubernetes that is answered like, unless a
    cluster says otherwise. `seed` is what properties draw with; `on_decided` is called as they go,
    and may raise to end them.
    """

    def __init__(
        self, bundle: Bundle, natives: Mapping[str, Natives], minor: int = RELEASED
    ) -> None:
        self.file = ""
        self._minor = minor
        self.seed = 0
        self.on_decided: Callable[[], None] = lambda: None
        self._natives = natives
        self._bundle = bundle
        self._questions: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "decide": self._decide,
            "failures": self._failures,
            "property": self._property,
            "order": self._order,
            "pre_enqueue": self._pre_enqueue,
            "permit": self._permit,
            "group": self._group,
            "queue": self._queue,
            "reclaim": self._reclaim,
        }
        self._whole: Scheduler | None = None
        self._alone: dict[tuple[str, bytes, str], Scheduler] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one request of `@std/testing.star`. Raises ValueError for what is wrong in it."""
        question = self._questions.get(str(request["question"]))
        if question is None:
            raise ValueError(f"no question `{request['question']}`")
        try:
            return question(request)
        except ArgumentsError as error:
            raise ValueError(str(error)) from None

    def _decide(self, request: Mapping[str, Any]) -> dict[str, Any]:
        world = self._world(request)
        try:
            pod, scheduler = self._ready(request["pod"], request)
        except PolicyErrors as errors:  # a policy may refuse its arguments when it is loaded
            return FullDecision(failures=tuple(map(str, errors.problems))).to_plain()
        _see_groups(scheduler, world, request, [pod])
        return decide(world, scheduler, pod).to_plain()

    def _failures(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The failures, including arguments that the policy does not take."""
        try:
            return {"failures": self._decide(request)["failures"]}
        except ArgumentsError as error:
            return {"failures": [str(error)]}

    def _property(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A counterexample of a property, as `found`."""

        def ask(changed: Mapping[str, Any]) -> dict[str, Any]:
            decided = self._decide({**request, "cluster": changed, "pod": changed["pod"]})
            if decided["failures"]:
                failures = "; ".join(decided["failures"]).replace("\nhint: ", "; ")
                raise ValueError(f"the policy fails: {failures}")
            self.on_decided()
            return decided

        base = {**request["cluster"], "pod": request["pod"]}
        match request["property"]:
            case "order":
                rng = random.Random(f"{self.seed}:{self.file}")
                found = order_matters(base, ask, rng, request["runs"])
            case "capacity":
                found = worse_with_more_capacity(base, ask, is_scored=request["scores"])
            case _:
                found = unknown_labels_matter(base, ask)
        return {"found": found}

    def _order(self, request: Mapping[str, Any]) -> dict[str, Any]:
        world = self._world(request)
        keyed = []
        groups = request["groups"] or [None] * len(request["pods"])
        ready = [self._ready(manifest, request, "queue_key") for manifest in request["pods"]]
        all_pods = [pod for pod, _ in ready]
        for (pod, scheduler), group in zip(ready, groups, strict=True):
            _see_groups(scheduler, world, {**request, "group": group}, all_pods)
            key = scheduler.hooks.queue_key(pod, world.snapshot)
            if isinstance(key, PolicyFailure):
                raise ValueError(str(key))
            keyed.append((key, pod.name))
        keyed.sort(key=lambda pair: pair[0])
        return {"order": [name for _, name in keyed]}

    def _pre_enqueue(self, request: Mapping[str, Any]) -> dict[str, Any]:
        world = self._world(request)
        pod, scheduler = self._ready(request["pod"], request, "pre_enqueue")
        _see_groups(scheduler, world, request, [pod])
        gate = scheduler.hooks.pre_enqueue(pod, world.snapshot)
        return {"reason": None if gate is None else gate[1]}

    def _permit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        world = self._world(request)
        pod, scheduler = self._ready(request["pod"], request, "permit")
        _see_groups(scheduler, world, request, [pod], waiting=pod)
        return {"verdicts": _sound(v for _, v in scheduler.hooks.permit(pod, world.snapshot))}

    def _group(self, request: Mapping[str, Any]) -> dict[str, Any]:
        world = self._world(request)
        pod, scheduler = self._ready(request["pod"], request)
        policies = scheduler.hooks.grouping()[pod.scheduler_name]
        groups = _sound(scheduler.hooks.group_of(e, pod, world.snapshot) for e in policies)
        return {"group": next((group for group in groups if group is not None), None)}

    def _queue(self, request: Mapping[str, Any]) -> dict[str, Any]:
        world = self._world(request)
        pod, scheduler = self._ready(request["pod"], request, "queue_of")
        if scheduler.tree is None:
            raise ValueError("the policies have no QueueTree")
        (found,) = _sound(scheduler.tree.queues_of([pod], world.snapshot))
        return {"queue": None if found is None else list(found)}

    def _reclaim(self, request: Mapping[str, Any]) -> dict[str, Any]:
        policy = self._policy()
        if "reclaim" not in policy.hooks:
            raise ValueError(f"policy `{policy.name}` has no hook `reclaim`")
        hooks = self._scheduler_of(policy, request["args"] or {}, "default-scheduler").tree
        assert hooks is not None, "made with one"
        given = []
        for path, values in request["queues"].items():
            attributes, wrong = hooks.tree.with_defaults(values, is_written=False)
            if wrong:
                raise ValueError(f"queue `{path}` {'; '.join(wrong)}")
            given.append(GivenQueue(path, "", attributes, is_path=True))
        tree = build_tree(given)
        if tree.problems:
            raise ValueError(f"queue `{tree.problems[0].queue}` {tree.problems[0].message}")
        pods = [SmallPod(one["name"], one["queue"], one["amounts"]) for one in request["placed"]]
        taker = request["taker"]
        taking = SmallPod(taker["name"], taker["queue"], taker["amounts"])
        for pod in (*pods, taking):
            if pod.queue not in tree.queues:
                raise ValueError(f"pod `{pod.name}`: there is no queue `{pod.queue}`")
        placed = {pod.name: pod for pod in pods}
        victims = victims_for(hooks, tree, request["total"], placed, taking)
        return {"victims": [one.name for one in victims]}

    def _world(self, request: Mapping[str, Any]) -> World:
        """The cluster of *request*; an empty one if it has none."""
        cluster = request["cluster"] or {}
        world = World.from_manifests(
            cluster.get("nodes", ()),
            _distinct(cluster.get("pods", ())),
            cluster.get("objects", ()),
            cluster.get("facts"),
            self._bundle.runtime.facts.time_zone,
            cluster.get("kubernetes_minor") or self._minor,
        )
        world.cache.set_pod_type_labels(self._bundle.runtime.facts.pod_type_labels)
        world.snapshot = world.cache.snapshot()
        for problem in _problems_of(world.snapshot):
            raise ValueError(problem)
        return world

    def _ready(
        self, manifest: Mapping[str, Any], request: Mapping[str, Any], hook: str = ""
    ) -> tuple[Pod, Scheduler]:
        """The pod of *manifest* and the scheduler that is to decide about it."""
        args, profile = request["args"], request["profile"]
        if profile is None:
            policy = self._policy()
            if hook and hook not in policy.hooks:
                raise ValueError(f"policy `{policy.name}` has no hook `{hook}`")
            pod = pod_of(manifest)
            return pod, self._scheduler_of(policy, args or {}, pod.scheduler_name)
        if args is not None:
            raise ValueError("want `args` or `profile`, got both: a profile has its own arguments")
        if self._whole is None:
            self._whole = Scheduler(
                self._bundle, InProcessEvaluator(self._bundle.program, self._natives)
            )
        pod = pod_of({**manifest, "spec": {**manifest["spec"], "schedulerName": profile}})
        if self._whole.profile_of(pod) is None:
            names = ", ".join(f"`{p.scheduler_name}`" for p in self._bundle.profiles)
            raise ValueError(f"no profile `{profile}`, want one of {names}")
        return pod, self._whole

    def _policy(self) -> Policy:
        module = self.file.removesuffix(TEST_SUFFIX) + ".star"
        for policy in self._bundle.policies.values():
            if policy.module == module:
                return policy
        raise ValueError(
            f"no policy `{module}` next to `{self.file}`: name one with `profile = ...`"
        )

    def _scheduler_of(
        self, policy: Policy, args: Mapping[str, Any], scheduler_name: str
    ) -> Scheduler:
        """A scheduler with *policy* alone at every extension point that it has a hook for."""
        key = (policy.name, msgspec.json.encode(args), scheduler_name)
        found = self._alone.get(key)
        if found is None:
            enabled = (EnabledPolicy(policy.name, 0),)
            profile = Profile(scheduler_name, dict.fromkeys(policy.hooks, enabled), {})
            given, types = _arguments(policy, args)
            instance = Instance(policy.name, policy.module, given, types)
            program = Program(self._bundle.files, (instance,), self._bundle.program.limits)
            declared = declaration(self._bundle.files[policy.module], ATTRIBUTES).defaults
            tree = policy_alone(policy, declared, self._bundle.files, given)
            bundle = replace(self._bundle, profiles=(profile,), program=program, queue_tree=tree)
            found = self._alone[key] = Scheduler(bundle, InProcessEvaluator(program, self._natives))
        return found


def _see_groups(
    scheduler: Scheduler,
    world: World,
    request: Mapping[str, Any],
    pods: Sequence[Pod],
    waiting: Pod | None = None,
) -> None:
    """Have *scheduler* see the group that is given, or count those of the cluster.

    *pods* are those in question; *waiting* has a node, and is in permit.
    """
    cluster = request["cluster"]
    if request.get("group") is not None or cluster is None:
        scheduler.hooks.groups = _always(request.get("group"))
        return
    given = {pod.key: pod for pod in pods}
    others = map(pod_of, [*_distinct(cluster["pods"]), *cluster["pending"]])
    known = [*(pod for pod in others if pod.key not in given), *given.values()]
    groups = PodGroups(world.cache)
    groups.use(scheduler, lambda: known)
    if waiting is not None:
        groups.set_waiting(waiting.uid, True)


def _always(group: Mapping[str, Any] | None) -> GroupSource:
    """Every pod is in this group."""
    state = None if group is None else PodGroupState(**group)
    return lambda enabled, pod: state


def _sound(verdicts: Iterable[Any]) -> list[Any]:
    """The verdicts. Raises ValueError if one is a failure."""
    found = list(verdicts)
    for verdict in found:
        if isinstance(verdict, PolicyFailure):
            raise ValueError(str(verdict))
    return found


def _arguments(policy: Policy, args: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Values and record types of *args*, read as a profile's `pluginConfig` is.

    Raises `ArgumentsError` for a name that the policy does not declare, or another type.
    """
    documents, problems = read_documents("args", msgspec.json.encode(args).decode())
    for document in documents:
        found = read_arguments(policy.name, document, policy.defaults)
        if not problems:  # those of the arguments are among them now
            return found.given, found.types
    texts = (", ".join(filter(None, [p.message, p.hint])) for p in problems)
    raise ArgumentsError("; ".join(texts))


def _problems_of(snapshot: Snapshot) -> Iterator[str]:
    """Fields of the nodes and the pods on them that an API server would refuse: they do not count.

    Those of the pod in question are reported by the assertion.
    """
    for info in snapshot.infos:
        if info is not None and info.node is not None:
            yield from (f"node `{info.name}`: {problem}" for problem in info.node.problems)
            for pod in info.pods.values():
                yield from (f"pod `{pod.key}`: {problem}" for problem in pod.problems)


def _distinct(manifests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Placed pods with names of their own: builders may give the same pod several times."""
    apart: list[dict[str, Any]] = []
    taken: set[tuple[str, str]] = set()
    for manifest in manifests:
        metadata = dict(manifest.get("metadata") or {})
        namespace, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
        unique, copy = name, 2
        while (namespace, unique) in taken:
            unique, copy = f"{name}-{copy}", copy + 1
        taken.add((namespace, unique))
        if unique != name:
            metadata |= {"name": unique, "uid": ""}
        apart.append({**manifest, "metadata": metadata})
    return apart
