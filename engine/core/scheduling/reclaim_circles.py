"""Looks for two queues that could take from each other in turn, by the rules of a policy.

Owns the search: small random clusters of one node, two resources and unequal pods, because one
resource and equal pods hide most circles. In each a request of one queue reclaims; if a pod that
went could then reclaim from the queue that took, the two would go on for ever. Nothing of it needs
a cluster: the policy is asked as it would be.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.core.scheduling.reclaim import Candidate, Reclaim
from engine.core.scheduling.tree_hooks import Giver, Request, TreeHooks
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.sharing.amounts import Amounts, add
from engine.core.sharing.sums import Contribution, PodPhase, QueueSums
from engine.core.sharing.tree import ROOT, GivenQueue, QueueTree, build_tree
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.hook_signatures import hook_signatures

_RESOURCES: Final = ("cpu", "memory")
# What a pod may request of each, and a queue be given; shortages and ties are among small numbers.
_OF_POD: Final = 3
_OF_QUEUE: Final = 8
_MOST_PODS: Final = 8
_SEED: Final = 20_261_129


@dataclass(frozen=True, slots=True)
class SmallPod:
    """A pod of a small cluster."""

    name: str
    queue: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Circle:
    """Two reclaims of which the second takes back what the first gave.

    Attributes:
        queues: The attributes of each queue, by path.
        total: What the node has.
        placed: The pods on it at first.
        taker, victims: The pod that comes, and those that go for it.
        again, back: One of those that went, and the pods that go for it, the taker among them or
            another one of its queue.
    """

    queues: Mapping[str, Mapping[str, Any]]
    total: Amounts
    placed: tuple[SmallPod, ...]
    taker: SmallPod
    victims: tuple[SmallPod, ...]
    again: SmallPod
    back: tuple[SmallPod, ...]


def search(
    hooks: TreeHooks, states: int, is_stopped: Callable[[], bool] = lambda: False
) -> tuple[Circle | None, int]:
    """The first circle of the document's own queues, or of made-up ones; so many *states* of each.

    With how many reclaims were looked at. The same policy and document have the same answer.
    """
    looked = 0
    for given in ([hooks.tree.given] if hooks.tree.given else []) + [()]:
        circle, count = find_circle(hooks, given, _SEED, states, is_stopped)
        looked += count
        if circle is not None:
            return circle, looked
    return None, looked


def find_circle(
    hooks: TreeHooks,
    given: Sequence[GivenQueue],
    seed: int,
    states: int,
    is_stopped: Callable[[], bool] = lambda: False,
) -> tuple[Circle | None, int]:
    """The first circle among so many random *states*, and how many reclaims were looked at.

    Args:
        given: The queues; none: some are made up, with attributes of the policy's types.
        seed: Of the states; the same one finds the same.
        is_stopped: Asked before each state: the search ends once it is True.
    """
    rng = random.Random(seed)
    units, looked = _units(given), 0
    for _ in range(states):
        if is_stopped():
            break
        tree = build_tree(given) if given else _made_up(hooks, rng)
        world = _World(hooks, tree, units, rng)
        found, count = world.circle()
        looked += count
        if found is not None:
            return found, looked
    return None, looked


class _World:
    """One random cluster."""

    def __init__(
        self, hooks: TreeHooks, tree: QueueTree, units: Amounts, rng: random.Random
    ) -> None:
        self._hooks, self._tree = hooks, tree
        leaves = sorted(path for path, queue in tree.queues.items() if queue.is_leaf and path)
        self._leaves = rng.sample(leaves, min(len(leaves), rng.randint(2, 4)))
        self._units = units
        self._total = {r: unit * rng.randint(2, _OF_QUEUE * 2) for r, unit in self._units.items()}
        self._rng = rng
        self._placed: dict[str, SmallPod] = {}
        used: dict[str, int] = {}
        for number in range(rng.randint(1, _MOST_PODS)):
            pod = self._pod(f"p{number}")
            if all(used.get(r, 0) + a <= self._total[r] for r, a in pod.amounts.items()):
                add(used, pod.amounts, 1)
                self._placed[pod.name] = pod

    def _pod(self, name: str) -> SmallPod:
        amounts = {r: unit * self._rng.randrange(_OF_POD) for r, unit in self._units.items()}
        return SmallPod(name, self._rng.choice(self._leaves), amounts)

    def circle(self) -> tuple[Circle | None, int]:
        """The circle that a random request begins, and how many reclaims there were."""
        before = tuple(self._placed.values())
        taker = self._pod("taker")
        victims = self._reclaim(taker)
        if not victims:
            return None, 0
        for one in victims:
            del self._placed[one.name]
        self._placed[taker.name] = taker
        for again in victims:
            back = self._reclaim(again)
            if any(one.queue == taker.queue for one in back) and again.queue != taker.queue:
                queues = {path: queue.attributes for path, queue in self._tree.queues.items()}
                found = Circle(queues, self._total, before, taker, victims, again, back)
                return found, 1
        return None, 1

    def _reclaim(self, taker: SmallPod) -> tuple[SmallPod, ...]:
        return victims_for(self._hooks, self._tree, self._total, self._placed, taker)


def victims_for(
    hooks: TreeHooks,
    tree: QueueTree,
    total: Amounts,
    placed: Mapping[str, SmallPod],
    taker: SmallPod,
) -> tuple[SmallPod, ...]:
    """The pods that would go for *taker*, of those *placed* (by name) on a node of *total*."""
    sums, shares = QueueSums(tree), TreeShares()
    for pod in placed.values():
        sums.put(pod.name, Contribution(pod.queue, PodPhase.ALLOCATED, pod.amounts))
    sums.put(taker.name, Contribution(taker.queue, PodPhase.WAITING, taker.amounts))
    shares.use(build_tree(()), tree)
    shares.compute(hooks, sums, total, 0.0)
    if shares.failures:
        return ()
    candidates = [
        Candidate((pod.name,), pod.queue, _giver(pod), (0, pod.name))
        for pod in placed.values()
        if pod.queue != taker.queue
    ]
    used: dict[str, int] = {}
    for pod in placed.values():
        add(used, pod.amounts, 1)

    def fits(gone: Sequence[Candidate]) -> bool:
        left = dict(used)
        for one in gone:
            add(left, placed[one.uids[0]].amounts, -1)
        return all(left.get(r, 0) + a <= total.get(r, 0) for r, a in taker.amounts.items())

    request = Request.of_pod(taker.amounts)
    plan = Reclaim(hooks, sums, shares, total, request=request, leaf=taker.queue).plan(
        [candidates], fits
    )
    return tuple(placed[one.uids[0]] for one in plan.victims)


def _giver(pod: SmallPod) -> Giver:
    return Giver(tuple(sorted({**pod.amounts, "pods": 1}.items())), 0, True, 0)


def _units(given: Sequence[GivenQueue]) -> dict[str, int]:
    """Of each resource a part of what a queue is *given*, so that a few pods use it up; or 1."""
    most = dict.fromkeys(_RESOURCES, 0)
    for queue in given:
        for value in queue.attributes.values():
            for resource, amount in value.items() if isinstance(value, dict) else ():
                most[resource] = max(most.get(resource, 0), amount)
    return {resource: max(amount // _OF_POD, 1) for resource, amount in most.items()}


def _made_up(hooks: TreeHooks, rng: random.Random) -> QueueTree:
    """A tree of one or two levels, with random attributes of the types that the policy declares."""
    depth = rng.randint(0, 1)
    paths = [f"q{n}" for n in range(rng.randint(2, 4))]
    if depth:
        paths = [f"c/{path}" for path in paths]
    attributes = hooks.tree.attributes
    return build_tree(
        GivenQueue(path, "", dict(_attributes(attributes, rng)), is_path=True)
        for path in [*(["c"] if depth else []), *paths]
    )


def _attributes(declared: Mapping[str, Any], rng: random.Random) -> Iterator[tuple[str, Any]]:
    for name, default in declared.items():
        value = default
        if isinstance(default, dict) or default is None:
            value = {r: rng.randrange(_OF_QUEUE) for r in _RESOURCES if rng.random() < 0.7}
            if default is None and not value:
                value = None
        elif isinstance(default, int) and not isinstance(default, bool) and rng.random() < 0.5:
            value = default * rng.randint(1, 3)
        yield name, value


def warning_of(circle: Circle, looked: int, bundle: Bundle) -> Problem:
    """The circle, found after so many reclaims, as a problem of the policy of *bundle*'s tree."""
    assert bundle.queue_tree is not None, "it governs the queues"
    policy = bundle.policies[bundle.queue_tree.policy]
    line = hook_signatures(bundle.files[policy.module])["reclaim"].line
    message = (
        f"reclaim() of `{policy.name}` could have two queues take from each other in turn; found "
        f"after {looked} reclaims: " + in_words(circle).replace("\n", "; ")
    )
    hint = (
        "`limits.minRuntime` keeps them apart for that long; `starsched check --deep` prints a test"
    )
    return Problem(policy.module, line, 0, message, hint, "warning")


def as_test(circle: Circle, policy: str) -> str:
    """The circle as a Starlark test, which fails while *policy* lets queues go round in it."""
    queues = {path: dict(attributes) for path, attributes in circle.queues.items() if path != ROOT}
    after = [one for one in circle.placed if one not in circle.victims]
    first = _call(circle, circle.placed, circle.taker, circle.victims)
    second = _call(circle, (*after, circle.taker), circle.again, ())
    head = '"""Two queues must not take from each other in turn: see `starsched check --deep`."""'
    load = 'load("@std/testing.star", "asserts", "queue_pod")'
    name = f"def test_{policy}_does_not_go_in_a_circle():"
    return "\n".join([head, "", load, "", f"_QUEUES = {queues!r}", "", name, *first, *second, ""])


def _call(
    circle: Circle, placed: Sequence[SmallPod], taker: SmallPod, want: Sequence[SmallPod]
) -> list[str]:
    return [
        "    pods = [",
        *(f"        {_written(one)}," for one in placed),
        "    ]",
        f"    taker = {_written(taker)}",
        f"    want = {[one.name for one in want]!r}",
        f"    asserts.reclaims(_QUEUES, {dict(circle.total)!r}, pods, taker, want)",
    ]


def _written(pod: SmallPod) -> str:
    return f"queue_pod({pod.name!r}, {pod.queue!r}, {dict(pod.amounts)!r})"


def in_words(circle: Circle) -> str:
    """The circle for people: the queues, the pods, and both reclaims."""
    lines = [f"the node has {_amounts(circle.total)}"]
    for path, attributes in circle.queues.items():
        if path != ROOT:
            shown = ", ".join(f"{name} {value}" for name, value in attributes.items())
            lines.append(f"queue {path}{': ' if shown else ''}{shown}")
    lines += [f"{one.name} of {one.queue} runs: {_amounts(one.amounts)}" for one in circle.placed]
    lines.append(
        f"{circle.taker.name} of {circle.taker.queue} asks: {_amounts(circle.taker.amounts)}"
    )
    gone = ", ".join(f"{one.name} of {one.queue}" for one in circle.victims)
    lines.append(f"it takes from {gone}")
    back = ", ".join(f"{one.name} of {one.queue}" for one in circle.back)
    lines.append(f"then {circle.again.name} of {circle.again.queue} takes from {back}")
    return "\n".join(lines)


def _amounts(amounts: Amounts) -> str:
    return ", ".join(f"{amount} {resource}" for resource, amount in amounts.items())
