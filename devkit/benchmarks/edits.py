"""Edits of policies as people make them, good and bad: what `make bench-rollout` rolls out.

Owns the policies that are edited and the makers of edits. Pure: a maker gets the texts in force and
a source of chance. What is bad is bad in a way that neither checks nor tests find: the text
compiles, keeps its types, and decides most pods as before or fails for few of them.
"""

import ast
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import yaml

#: Classes of the pods of the load, and the pools that they prefer.
POOLS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "web": ("pool-0", "pool-1"),
    "batch": ("pool-2",),
    "cache": ("pool-1", "pool-3"),
    "report": ("pool-3",),
    "train": ("pool-0", "pool-2"),
}
#: The label whose values are spread evenly over the pods: one in so many.
SHARDS: Final = 50
GROUP_LABEL: Final = "job"
SIZE_LABEL: Final = "job-size"

_MOST_BARRED: Final = 6
_MOST_TASTES: Final = 4
_WEIGHTS: Final = (15, 25)
_KEPT_FREE: Final = 1_500

_POOLS: Final = '''"""Prefers the pools that a class of pods is made for.

Hooks: score. Reads: pod.labels["class"], node.labels["pool"].
"""

_POOLS_OF = {pools}

{helper}def score(pod, node):
    kind = pod.labels.get("class", "")
    pool = node.labels.get("pool", "")
    return {points}
'''
_POINTS: Final = "100 if pool in _POOLS_OF.get(kind, ()) else 0"
_WRONG_POINTS: Final = "0 if pool in _POOLS_OF.get(kind, ()) else 100"
_HELPER: Final = """def _points(kind, pool):
    return {points}

"""
_LIMITS: Final = '''"""Keeps classes of pods off some pools, and capacity of each node free.

Hooks: filter. Reads: pod.labels["class"], node.labels["pool"], allocatable and requested of nodes.
"""

_BARRED = {barred}
_KEPT_FREE_MILLIS = {{"batch": {kept_free}}}

def filter(pod, node):
    kind = pod.labels.get("class", "")
    barred = _BARRED.get(kind, ())
{fault}    if node.labels.get("pool", "") in barred:
        return "node(s) were in a pool that is not for this class of pods"
    kept = _KEPT_FREE_MILLIS.get(kind, 0)
    if kept > 0 and node.allocatable.get("cpu", 0) - node.requested.get("cpu", 0) < kept:
        return "node(s) had too little capacity left for other pods"
    return None
'''
_GROUPS: Final = f'''"""Binds the pods of a job once all of them have a node.

Hooks: group_of, pre_enqueue, permit. Reads: pod.labels, of the group how many pods are there, wait
and are placed.
"""

def group_of(pod):
    job = pod.labels.get("{GROUP_LABEL}")
    if not job:
        return None
    size = parse_int(pod.labels.get("{SIZE_LABEL}"), 1)
    return gang(job, min_count = {{size}})

def pre_enqueue(pod, group):
    if group != None and group.pod_count < group.min_count:
        return "the job has fewer pods than belong together"
    return None

def permit(pod, group):
    if group != None and group.waiting + group.placed {{below}} group.min_count:
        return wait(120, "waiting for the other pods of the job")
    return None
'''
_TASTE: Final = '''"""Prefers nodes with a label that nodes may get one day.

Hooks: score. Reads: node.labels["{label}"].
"""

def score(pod, node):
    return 100 if node.labels.get("{label}") == "yes" else 0
'''

#: What a slow filter does about each node. It reads what differs from pod to pod: what it says of
#: pods that are alike would be evaluated once.
_SLOW: Final = """    if kind == "report":
        spent = len(pod.name)
        for number in range({rounds}):
            spent = (spent * 31 + number) % 1000003
        if spent < 0:
            return "never"
"""
_FAILS: Final = """    if pod.labels.get("shard", "") == "{shard}":
        fail("no rule for shard {shard}")
"""
_STRICT: Final = """    if kind == "{kind}" and node.labels.get("pool", "") != "none":
        return "node(s) were not in the pool of this class of pods"
"""


@dataclass(frozen=True, slots=True)
class Policies:
    """Policies, as what can be edited about them.

    Attributes:
        edit: The number of the edit that made them; in every text that it concerns, so that no two
            revisions are equal.
        touched: The file that the edit says so in.
        weight: Of the preference for pools, against 1 of every other score.
        barred: Pools by class of pods.
        kept_free: Millicores that batch pods leave on a node.
        tastes: Labels that further policies prefer.
        indent: Of all texts, in spaces; 0: as they were written.
        suffix: Of local names.
        has_helper: A function of its own says the points of a pool.
        fault: What is bad about them; "" if nothing is.
        detail: The class, shard or number that the fault concerns.
    """

    edit: int = 0
    touched: str = "pools.star"
    weight: int = 20
    barred: tuple[tuple[str, str], ...] = (("quarantined", "pool-3"),)
    kept_free: int = _KEPT_FREE
    tastes: tuple[str, ...] = ()
    indent: int = 0
    suffix: str = ""
    has_helper: bool = False
    fault: str = ""
    detail: str = ""

    def files(self, rollout: Mapping[str, object]) -> dict[str, str]:
        """The texts, by file name, with the stages of *rollout*."""
        texts = {
            "pools.star": self._pools(),
            "limits.star": self._limits(),
            "groups.star": self._groups(),
            **{f"taste_{label}.star": _TASTE.format(label=label) for label in self.tastes},
        }
        texts = {name: self._styled(text) for name, text in texts.items()}
        texts[self.touched] += f"\n# Edit {self.edit}.\n"
        return texts | {"config.yaml": self._config(), "runtime.yaml": _runtime(rollout)}

    def _pools(self) -> str:
        points = _WRONG_POINTS if self.fault == "wrong sign" else _POINTS
        helper = _HELPER.format(points=points) if self.has_helper else ""
        return _POOLS.format(
            pools=dict(POOLS_OF),
            helper=helper,
            points="_points(kind, pool)" if self.has_helper else points,
        )

    def _limits(self) -> str:
        barred: dict[str, tuple[str, ...]] = {}
        for kind, pool in self.barred:
            barred[kind] = (*barred.get(kind, ()), pool)
        fault = {
            "slow": _SLOW.format(rounds=self.detail),
            "failure": _FAILS.format(shard=self.detail),
            "strict": _STRICT.format(kind=self.detail),
        }.get(self.fault, "")
        return _LIMITS.format(barred=barred, kept_free=self.kept_free, fault=fault)

    def _groups(self) -> str:
        return _GROUPS.format(
            size="size + 1" if self.fault == "group too large" else "size",
            below="<=" if self.fault == "no approval" else "<",
        )

    def _styled(self, text: str) -> str:
        if not self.suffix and not self.indent:
            return text
        tree = ast.parse(text)
        _rename_locals(tree, self.suffix)
        return re.sub(
            r"^ +(?=\S)",
            lambda found: " " * (len(found[0]) // 4 * (self.indent or 4)),
            ast.unparse(tree) + "\n",
            flags=re.MULTILINE,
        )

    def _config(self) -> str:
        enabled: list[dict[str, object]] = [
            {"name": "pools", "weight": self.weight},
            {"name": "limits"},
            {"name": "groups"},
        ]
        enabled += [{"name": f"taste_{label}"} for label in self.tastes]
        profile = {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": enabled}},
        }
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
        return f"# Edit {self.edit}.\n" + yaml.safe_dump(document, sort_keys=False)


def _runtime(rollout: Mapping[str, object]) -> str:
    document = {
        "apiVersion": "starsched.dev/v1",
        "kind": "PolicyRuntime",
        "rollout": dict(rollout),
    }
    return yaml.safe_dump(document, sort_keys=False)


def _rename_locals(tree: ast.Module, suffix: str) -> None:
    """Add *suffix* to the names that functions assign."""
    for function in tree.body:
        if not suffix or not isinstance(function, ast.FunctionDef):
            continue
        names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
        assigned = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        for node in names:
            if node.id in assigned:
                node.id += f"_{suffix}"


# --- makers ----------------------------------------------------------------------------------

Maker: TypeAlias = Callable[[Policies, random.Random], Policies]
"""What an edit changes of the policies in force."""


def _comment(before: Policies, rng: random.Random) -> Policies:
    return replace(before, touched=rng.choice(["pools.star", "limits.star", "groups.star"]))


def _reformat(before: Policies, rng: random.Random) -> Policies:
    return replace(before, indent=rng.choice([n for n in (0, 2, 3, 4, 8) if n != before.indent]))


def _rename(before: Policies, rng: random.Random) -> Policies:
    suffix = rng.choice([s for s in ("", "of_pod", "here", "now") if s != before.suffix])
    return replace(before, suffix=suffix)


def _refactor(before: Policies, rng: random.Random) -> Policies:
    return replace(before, has_helper=not before.has_helper)


def _reweigh(before: Policies, rng: random.Random) -> Policies:
    low, high = _WEIGHTS
    step = rng.choice([-1, 1])
    weight = before.weight + (step if low <= before.weight + step <= high else -step)
    return replace(before, weight=weight)


def _stricter(before: Policies, rng: random.Random) -> Policies:
    entry = (f"retired_{rng.randrange(1_000)}", f"pool-{rng.randrange(4)}")
    return replace(before, barred=(*before.barred, entry)[-_MOST_BARRED:], touched="limits.star")


def _looser(before: Policies, rng: random.Random) -> Policies:
    if before.kept_free >= 10:
        return replace(before, kept_free=before.kept_free - 10, touched="limits.star")
    return replace(before, barred=before.barred[1:], touched="limits.star")


def _new_policy(before: Policies, rng: random.Random) -> Policies:
    label = f"{rng.choice(['quiet', 'green', 'fast', 'dense'])}_{rng.randrange(1_000)}"
    tastes = tuple(dict.fromkeys((*before.tastes, label)))[-_MOST_TASTES:]
    return replace(before, tastes=tastes, touched=f"taste_{label}.star")


def _with_fault(fault: str, detail: Callable[[random.Random], str], touched: str) -> Maker:
    def make(before: Policies, rng: random.Random) -> Policies:
        return replace(before, fault=fault, detail=detail(rng), touched=touched)

    return make


def _nothing(_: random.Random) -> str:
    return ""


GOOD: Final[Mapping[str, Maker]] = {
    "comment": _comment,
    "reformatted": _reformat,
    "renamed locals": _rename,
    "helper": _refactor,
    "weight": _reweigh,
    "stricter for no pod": _stricter,
    "looser": _looser,
    "new policy": _new_policy,
}
BAD: Final[Mapping[str, Maker]] = {
    "wrong sign": _with_fault("wrong sign", _nothing, "pools.star"),
    "too strict for a class": _with_fault(
        "strict", lambda rng: rng.choice(["cache", "report", "train"]), "limits.star"
    ),
    "slow for a class": _with_fault(
        "slow", lambda rng: str(rng.choice([40_000, 80_000])), "limits.star"
    ),
    "failure for 1 in 50": _with_fault(
        "failure", lambda rng: str(rng.randrange(SHARDS)), "limits.star"
    ),
    "group too large": _with_fault("group too large", _nothing, "groups.star"),
    "no approval": _with_fault("no approval", _nothing, "groups.star"),
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: who made it, and what would be in force."""

    number: int
    maker: str
    is_bad: bool
    policies: Policies

    def again(self) -> "Edit":
        """The same as another revision."""
        return replace(self, policies=replace(self.policies, edit=-self.number))


def plan_of(edits: int, bad: float, seed: int) -> list[str]:
    """The makers of *edits* edits, of which the share *bad* is bad; each kind as often."""
    rng = random.Random(seed)
    count = round(edits * bad)
    makers = [list(BAD)[n % len(BAD)] for n in range(count)]
    makers += [list(GOOD)[n % len(GOOD)] for n in range(edits - count)]
    rng.shuffle(makers)
    return makers


def make_edit(number: int, maker: str, before: Policies, seed: int) -> Edit:
    """The edit with *number* (1 and above) of the policies *before*, which are good."""
    rng = random.Random(f"{seed}/{number}")
    make = BAD[maker] if maker in BAD else GOOD[maker]
    after = make(before, rng)
    if after.touched.startswith("taste_") and after.touched[6:-5] not in after.tastes:
        after = replace(after, touched="pools.star")
    return Edit(number, maker, maker in BAD, replace(after, edit=number))
