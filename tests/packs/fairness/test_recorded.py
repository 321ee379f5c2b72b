"""The shipped policies of queues give what the originals were seen to give.

What is recorded is in `tests/data/fair-share`. `KNOWN` lists every row that differs, with version,
file and reason; a row that no longer differs fails.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import pytest

from tests.packs.fairness.tree_world import TreeWorld, fractions

DATA: Final = Path(__file__).parents[2] / "data" / "fair-share"

#: Rows that differ: by the file and the row's number, why.
KNOWN: Final = {
    ("koord", "5b"): (
        "Koordinator 1.8.0, scale_minquota_when_over_root_res.go: the min of a quota is scaled when"
        " that quota is read, so the first that is read gets its part beside the others' old mins: "
        "66, and 67 when it is read again"
    ),
    ("volcano", "4"): (
        "Volcano 1.15.1, proportion.go: the gauges of a queue without jobs are those of the run "
        "before; it gets nothing, and its guarantee lies idle"
    ),
}


def lines(name: str) -> list[str]:
    """The lines of a recorded file."""
    return (DATA / f"{name}.txt").read_text().splitlines()


def blocks(name: str) -> dict[str, list[str]]:
    """By the number of each row, its title and what is indented below it."""
    found: dict[str, list[str]] = {}
    for line in lines(name):
        if not line.startswith(" "):
            number, _, title = line.partition(" ")
            found[number] = rows = [title]
        else:
            rows.append(line.strip())
    return found


def agrees(name: str, number: str, got: Any, want: Any) -> None:
    """*got* is what was recorded, or the row is known not to be."""
    if (name, number) in KNOWN:
        assert got != want, f"{name} {number} is as recorded: take it out of KNOWN"
    else:
        assert got == want


# --- Koordinator -----------------------------------------------------------------------------

KOORDINATOR: Final = blocks("koord")
_QUOTA: Final = re.compile(
    r"(\w+) +min (\d+) max (\d+) w (-?\d+) want (\d+) lent (true|false) -> runtime (\d+)"
)


@pytest.mark.parametrize("number", KOORDINATOR)
def test_elastic_quotas_of_koordinator(number: str) -> None:
    title, *rows = KOORDINATOR[number]
    found = [m.groups() for row in rows if (m := _QUOTA.fullmatch(row))]
    names = [one[0] for one in found]
    under = {name: f"p/{name}" for name in names if re.fullmatch(r"p\d", name)}
    queues = {}
    for name, low, high, weight, _, lent, _ in found:
        queues[under.get(name, name)] = {
            "min": {"cpu": int(low)},
            "max": {"cpu": int(high)},
            "shared_weight": {} if weight == "-1" else {"cpu": int(weight)},
            "lends": lent == "true",
        }
    (total,) = re.findall(r"total (\d+)", title)
    # The first program left the scaling of mins off, which is on by default.
    world = TreeWorld("elastic_quota", {"cpu": int(total)}, queues, scale_min="scaled" in title)
    for name, *_, want, _, _ in found:
        if int(want):
            world.put(under.get(name, name), waits=True, cpu=int(want))
    shares = world.shares()
    got = {name: shares[under.get(name, name)]["cpu"] for name in names}
    agrees("koord", number, got, {one[0]: int(one[6]) for one in found})


def test_mins_above_the_total_are_scaled_unless_that_is_off() -> None:
    """Run with the whole scheduler, as it is by default: 50, 50."""
    queues = {name: {"min": {"cpu": 80}, "max": {"cpu": 100}} for name in "ab"}
    world = TreeWorld("elastic_quota", {"cpu": 100}, queues)
    for name in "ab":
        world.put(name, waits=True, cpu=100)
    assert world.shares() == {"a": {"cpu": 50}, "b": {"cpu": 50}}


def test_a_weight_of_zero_beside_others_is_zero() -> None:
    """Run with the whole scheduler: two such quotas leave 80 of 100 GPUs unused."""
    quota = {
        "min": {"nvidia.com/gpu": 10},
        "max": {"cpu": 100, "nvidia.com/gpu": 100},
        "shared_weight": {"cpu": 1},
    }
    world = TreeWorld(
        "elastic_quota", {"cpu": 100, "nvidia.com/gpu": 100}, {"a": quota, "b": quota}
    )
    for name in "ab":
        world.put(name, waits=True, gpu=100)
    assert {one["nvidia.com/gpu"] for one in world.shares().values()} == {10}


@pytest.mark.parametrize(("total", "part"), [(50, 1), (49, 0)])
def test_a_hundred_equal_quotas_get_too_much_or_nothing(total: int, part: int) -> None:
    """Run with the whole scheduler: 100 of 50, or 0 of 49."""
    queues = {f"q{n}": {"max": {"nvidia.com/gpu": 10}} for n in range(100)}
    world = TreeWorld("elastic_quota", {"nvidia.com/gpu": total}, queues)
    for path in queues:
        world.put(path, waits=True, gpu=1)
    assert {one["nvidia.com/gpu"] for one in world.shares().values()} == {part}


# --- Kueue -----------------------------------------------------------------------------------

KUEUE: Final = blocks("kueue")
_CLUSTER_QUEUE: Final = re.compile(
    r'(\w+) +nominal (\d+) borrow "(\d*)" lend "(\d*)" w "(\w*)" used (\d+): '
    r"share ([\d.]+|\+Inf) borrowing (\w+) available (-?\d+) potential (\d+)"
)
_COHORT: Final = re.compile(
    r"\((\w+)\) used (\d+) subtree quota (\d+) share ([\d.]+) borrowing (\w+)"
)
#: Cohorts that are under others, of which the outputs do not speak.
_COHORTS: Final = {"5": {"l1": "root/left", "l2": "root/left", "r1": "root/right"}}
_WEIGHTS: Final = {("5", "root/left"): 2000}


def _kueue(number: str) -> tuple[TreeWorld, dict[str, str], list[tuple[str, ...]]]:
    """The set-up of a row; the path of each ClusterQueue and cohort; the rows of ClusterQueues."""
    found = [m.groups() for row in KUEUE[number][1:] if (m := _CLUSTER_QUEUE.fullmatch(row))]
    above = _COHORTS.get(number, {})
    paths = {name: f"{above.get(name, 'all')}/{name}" for name, *_ in found}
    queues: dict[str, dict[str, Any]] = {}
    for name, nominal, borrow, lend, weight, *_ in found:
        queues[paths[name]] = {
            "nominal": {"cpu": 1000 * int(nominal)},
            "borrowing_limit": {"cpu": 1000 * int(borrow)} if borrow else {},
            "lending_limit": {"cpu": 1000 * int(lend)} if lend else {},
            "weight": int(weight[:-1]) if weight.endswith("m") else 1000 * int(weight or 1),
        }
    for (row, path), weight_ in _WEIGHTS.items():
        if row == number:
            queues[path] = {"weight": weight_}
    world = TreeWorld("kueue_fair", {"cpu": 1_000_000}, queues)
    for name, *_, used, _, _, _, _ in found:
        if int(used):
            world.put(paths[name], cpu=int(used))
    for path in world.tree.queues:
        paths.setdefault(path.rpartition("/")[2], path)
    return world, paths, found


def _share(world: TreeWorld, path: str) -> str:
    """The share of a queue that is asked about nothing, as Kueue writes it."""
    _, is_infinite, share = fractions(world.key(path))
    return "+Inf" if is_infinite else f"{float(share):.3f}"


@pytest.mark.parametrize("number", KUEUE)
def test_cohorts_of_kueue(number: str) -> None:
    world, paths, found = _kueue(number)
    for name, *_, share, borrowing, available, potential in found:
        path, free = paths[name], int(available)
        assert _share(world, path) == share
        assert (_share(world, path) != "0.000") == (borrowing == "true")
        root = path.partition("/")[0]
        if free:
            assert world.admit(path, cpu=free) is None
        if free < int(potential):
            assert world.admit(path, cpu=free + 1) == (root, ("cpu", 1))
        assert world.admit(path, cpu=int(potential) + 1) == ("", None), "never so much"
    for row in KUEUE[number][1:]:
        if match := _COHORT.fullmatch(row):
            name, used, quota, share, _ = match.groups()
            assert _share(world, paths[name]) == share
            up = world.standing[paths[name]].up
            assert up["quota"]["cpu"] == int(quota)
            assert up.get("used", {}).get("cpu", 0) == int(used)


# --- Volcano ---------------------------------------------------------------------------------

VOLCANO: Final = blocks("volcano")
_TOTAL: Final = {"cpu": 12000, "memory": 12_000_000, "pods": 1000}
_GPU: Final = "nvidia.com/gpu"


def _both(cpu: int, **more: int) -> dict[str, int]:
    """An amount of cpu, and as many kilobytes."""
    return {"cpu": cpu, "memory": 1000 * cpu, **more}


#: Of each row of `proportion`: the queues, their pods (how many, of what, if they run), and the
#: GPUs that there are.
PROPORTION: Final[dict[str, tuple[dict[str, Any], dict[str, list[Any]], int]]] = {
    "1": ({"a": {"weight": 3}, "b": {}}, {"a": [(20, {})], "b": [(20, {})]}, 0),
    "2": ({"a": {}, "b": {}}, {"a": [(2, {})], "b": [(20, {})]}, 0),
    "3": (
        {"a": {"guarantee": _both(8000)}, "b": {}, "d": {}},
        {"a": [(1, {})], "b": [(20, {})], "d": [(20, {})]},
        0,
    ),
    "4": ({"a": {"guarantee": _both(8000)}, "b": {}}, {"b": [(20, {})]}, 0),
    "5": (
        {"a": {"weight": 3, "capability": _both(2000)}, "b": {}},
        {"a": [(20, {})], "b": [(20, {})]},
        0,
    ),
    "6": ({"a": {}, "b": {}}, {"a": [(3, {"runs": True, "cpu": 4000})], "b": [(6, {})]}, 0),
    "7": (
        {"a": {}, "b": {}},
        {"a": [(1, {"runs": True, "gpu": 7}), (1, {"runs": True})], "b": [(6, {})]},
        8,
    ),
    "8": ({"a": {}, "b": {}}, {"a": [(8, {"gpu": 1})], "b": [(20, {})]}, 8),
    "9": (
        {"a": {"guarantee": _both(4000)}, "b": {"guarantee": _both(2000), "weight": 9}},
        {"a": [(20, {})], "b": [(20, {})]},
        0,
    ),
}


def _deserved(row: str) -> tuple[str, dict[str, int], Fraction]:
    """Of a queue of a recorded row, what it deserves and its share."""
    name, rest = row.split(maxsplit=1)
    amounts = {}
    for gauge, value in re.findall(r"deserved_(\S+?)=(\S+)", rest):
        kind, _, resource = gauge.partition(f",{name}")
        resource = resource.lstrip(",") or {"milli_cpu": "cpu", "memory_bytes": "memory"}[kind]
        amounts[resource] = int(float(value)) // (1000 if resource == _GPU else 1)
    (share,) = re.findall(r" share,\w+=(\S+)", rest)
    return name, amounts, Fraction(share)


def _queues_of(number: str) -> Iterator[tuple[str, dict[str, int], Fraction]]:
    for row in VOLCANO[number][1:]:
        if "deserved" in row:
            yield _deserved(row)


@pytest.mark.parametrize("number", PROPORTION)
def test_proportion_of_volcano(number: str) -> None:
    queues, pods, gpus = PROPORTION[number]
    world = TreeWorld("proportion", {**_TOTAL, **({_GPU: gpus} if gpus else {})}, queues)
    for name, given in pods.items():
        for count, what in given:
            for _ in range(count):
                amounts = {**_both(what.get("cpu", 1000)), "gpu": what.get("gpu", 0)}
                world.put(name, waits="runs" not in what, **{r: v for r, v in amounts.items() if v})
    shares = world.shares()
    got = {name: {r: v for r, v in shares[name].items() if v} for name in shares}
    recorded = list(_queues_of(number))
    agrees(
        "volcano",
        number,
        got,
        {name: {r: v for r, v in deserved.items() if v} for name, deserved, _ in recorded},
    )
    keys = {name: fractions(world.key(name))[1] for name, _, _ in recorded}
    assert keys == {name: share for name, _, share in recorded}


#: Of each row of `capacity`: what a and b deserve, a's pods (how many, of how much cpu and GPUs).
CAPACITY: Final[dict[str, tuple[dict[str, int], dict[str, int], dict[str, int], Any]]] = {
    "c1": (_both(4000), _both(8000), {}, (10, 1000, 0)),
    "c2": (_both(4000), _both(8000), {}, (4, 1000, 0)),
    "c3": ({}, {}, {}, (4, 1000, 0)),
    "c4": (_both(5000), _both(7000), {}, (2, 4000, 0)),
    "c5": (_both(1000, **{_GPU: 8}), _both(11000, **{_GPU: 4}), {}, (4, 1000, 1)),
    "c6": (_both(8000), _both(8000), _both(2000), (0, 0, 0)),
}


@pytest.mark.parametrize("number", CAPACITY)
def test_capacity_of_volcano(number: str) -> None:
    mine, theirs, capability, (count, cpu, gpus) = CAPACITY[number]
    world = TreeWorld(
        "capacity",
        {**_TOTAL, _GPU: 8},
        {"a": {"deserved": mine, "capability": capability}, "b": {"deserved": theirs}},
    )
    for _ in range(count):
        world.put("a", _both(cpu, **({_GPU: gpus} if gpus else {})))
    for name, deserved, share in _queues_of(number):
        _, got, is_last = fractions(world.key(name))
        assert (got, is_last) == (share, int(not any(deserved.values())))
        # What it deserves shows in its share of so much more.
        for resource in ("cpu", _GPU):
            if deserved.get(resource):
                attributes = {one: world.tree.queues[one].attributes for one in "ab"}
                other = TreeWorld("capacity", world.total, attributes)
                other.put(name, {resource: 3 * deserved[resource]})
                assert fractions(other.key(name))[1] == 3


def test_what_a_queue_may_reach_leaves_out_what_others_are_guaranteed() -> None:
    queues = {"a": {"guarantee": {"cpu": 4000}}, "b": {"guarantee": {"cpu": 2000}}, "c": {}}
    for policy in ("proportion", "capacity"):
        world = TreeWorld(policy, {"cpu": 12000}, queues)
        world.put("b", waits=True, cpu=20000)
        assert world.admit("b", cpu=8000) is None
        assert world.admit("b", cpu=8001) == ("b", ("cpu", 1))


# --- YuniKorn --------------------------------------------------------------------------------


def _first(left: list[Any], right: list[Any]) -> int:
    return (left > right) - (left < right)


#: Of each comparison, two queues: what each is guaranteed, may have, and uses.
YUNIKORN: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "1": ({"guaranteed": {"cpu": 50}, "uses": {"cpu": 50}}, {"uses": {"cpu": 60}}),
    "2": ({"uses": {"cpu": 10}}, {"guaranteed": {"cpu": 20}, "uses": {"cpu": 3}}),
    # A guarantee of 0 counts beside another one; alone it is none, as the scheduler reads its file.
    "3": ({"guaranteed": {"cpu": 0, "gpu": 5}, "uses": {"cpu": 1}}, {"uses": {"cpu": 90}}),
    "4": (
        {"guaranteed": {"cpu": 0, "gpu": 5}, "uses": {"cpu": 1}},
        {"guaranteed": {"cpu": 10}, "uses": {"cpu": 30}},
    ),
    "5": ({"guaranteed": {"cpu": 10}, "uses": {"cpu": 1, "memory": 80}}, {"uses": {"cpu": 50}}),
    "6": ({"uses": {"gpu": 8}}, {"uses": {"cpu": 1}}),
    "7": ({"max": {"gpu": 0, "memory": 100}, "uses": {"gpu": 1}}, {"uses": {"cpu": 99}}),
    "8": ({"uses": {}}, {"uses": {}}),
    "9": ({"max": {"cpu": 10}, "uses": {"cpu": 5}}, {"uses": {"cpu": 40}}),
}
_COMPARISON: Final = re.compile(r"(\d) .* -> (-?\d) +\(-1: left first\)")


@pytest.mark.parametrize("number", YUNIKORN)
def test_fair_queues_of_yunikorn(number: str) -> None:
    (want,) = [
        m[2] for line in lines("yunikorn") if (m := _COMPARISON.fullmatch(line)) and m[1] == number
    ]
    queues = {
        name: {what: v for what, v in one.items() if what != "uses"}
        for name, one in zip(("left", "right"), YUNIKORN[number], strict=True)
    }
    world = TreeWorld("yunikorn_fair", {"cpu": 100, "memory": 100}, queues)
    for name, one in zip(("left", "right"), YUNIKORN[number], strict=True):
        if one["uses"]:
            world.put(name, one["uses"])
    keys = [fractions(world.key(name)) for name in ("left", "right")]
    assert _first(*keys) == int(want)


def test_a_guarantee_of_nothing_but_zeros_is_none() -> None:
    """Run with the whole scheduler, from a `queues.yaml`."""
    world = TreeWorld("yunikorn_fair", {"cpu": 100}, {"a": {"guaranteed": {"cpu": 0}}, "b": {}})
    world.put("a", cpu=1)
    world.put("b", cpu=1)
    assert world.key("a") == world.key("b")


def test_a_max_of_nothing_but_zeros_is_none() -> None:
    """As `setResources` of a queue has it: of its oracle, `tests/fairness/oracle/yunikorn.go`."""
    world = TreeWorld("yunikorn_fair", {"cpu": 100}, {"a": {"max": {"cpu": 0}}, "b": {}})
    world.put("a", cpu=1)
    world.put("b", cpu=1)
    assert world.key("a") == world.key("b")
    assert world.admit("a", cpu=1) is None


# --- KAI -------------------------------------------------------------------------------------

KAI: Final = blocks("kai")
_EVERY: Final = 99

#: Of each row: what each queue has, what it wants (all there is) and what it used in the past
#: (thousandths). Row 3b has halves of a device: it is counted in thousandths.
KAI_QUEUES: Final[dict[str, dict[str, dict[str, int]]]] = {
    "1": {"a": {"quota": 2, "weight": 1}, "b": {"quota": 2, "weight": 3}},
    "2": {"a": {}, "b": {}, "c": {}},
    "3": {"a": {"quota": 2, "priority": 1}, "b": {"quota": 2, "priority": 0}},
    "3b": {
        "a": {"priority": 1, "wants": 7000},
        "b": {"priority": 1, "wants": 1500},
        "c": {"priority": 0, "wants": 5000},
    },
    "4": {"a": {"quota": 6, "wants": 6}, "b": {"quota": 6, "wants": 6}},
    "5": {"a": {"quota": 2, "weight": 0}, "b": {"quota": 3, "weight": 0}},
    "6": {"a": {"limit": 4, "weight": 5}, "b": {}},
    "7": {"a": {"used": 500}, "b": {}},
    "7b": {"a": {"used": 1000}, "b": {}},
    "7c": {"a": {"used": 1000}, "b": {"used": 1000}},
    "7d": {"a": {"quota": 6, "used": 1000}, "b": {}},
    "8": {"a": {"quota": 1 << 62}, "b": {"quota": 2}},
    "9": {"a": {"weight": 2}, "b": {"weight": 2}, "c": {}},
    "10": {"a": {}, "b": {}},
}


@pytest.mark.parametrize("number", KAI)
def test_fair_shares_of_kai(number: str) -> None:
    title, shares, *_ = [row for row in KAI[number] if "allocatable" not in row]
    found = re.search(r"total (\d+), k (\d+)", title)
    assert found is not None
    scale = 1000 if number == "3b" else 1
    queues = {}
    for name, one in KAI_QUEUES[number].items():
        queues[name] = {
            "weight": {_GPU: 1000 * one.get("weight", 1)},
            "priority": one.get("priority", 100),
        }
        queues[name] |= {what: {_GPU: one[what]} for what in ("quota", "limit") if what in one}
    total, past = int(found[1]), int(found[2])
    world = TreeWorld("kai_fair", {_GPU: scale * total}, queues, past=1000 * past)
    for name, one in KAI_QUEUES[number].items():
        world.put(name, waits=True, gpu=one.get("wants", _EVERY))
    used = {name: {"usage": {_GPU: one.get("used", 0)}} for name, one in KAI_QUEUES[number].items()}
    got = {name: share[_GPU] for name, share in world.ask_shares(used).items()}
    assert got == {
        name: int(scale * Fraction(v)) for name, v in re.findall(r"(\w)=([\d.]+)", shares)
    }
    if not past:
        assert {name: share[_GPU] for name, share in world.shares().items()} == got


# --- CapacityScheduling ----------------------------------------------------------------------

_SP: Final = re.compile(r"(\d) .* overMax (\w+) .* cluster over min (\w+)")

#: Of each row: min and max of the queue, what it uses, what the pod asks for; the same of another.
CAPACITY_SCHEDULING: Final[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "1": ({"min": {"cpu": 4}, "max": {"cpu": 8}, "asks": {"cpu": 1, "memory": 1}}, {}),
    "2": ({"min": {"cpu": 4}, "asks": {"memory": 1}}, {}),
    "3": ({"min": {"cpu": 4, "gpu": 2}, "max": {"cpu": 8}, "asks": {"gpu": 1}}, {}),
    "4": ({"min": {"cpu": 4}, "max": {"cpu": 8}, "asks": {"gpu": 1}}, {}),
    "5": ({"min": {"cpu": 4}, "asks": {"cpu": 1}}, {"min": {"cpu": 4}, "uses": {"cpu": 8}}),
    "6": ({"min": {"cpu": 4}, "max": {"cpu": 4}, "uses": {"cpu": 4}, "asks": {}}, {}),
    "7": ({"min": {"cpu": 4}, "max": {"cpu": 4}, "uses": {"cpu": 5}, "asks": {}}, {}),
    "8": (
        {"min": {"cpu": 4, "memory": 4}, "asks": {"cpu": 1}},
        {"min": {"cpu": 4, "memory": 4}, "uses": {"memory": 9}},
    ),
    "9": ({"min": {"cpu": 4, "gpu": 1}, "uses": {"gpu": 3}, "asks": {"cpu": 1}}, {}),
}


def _with_gpus(amounts: dict[str, int]) -> dict[str, int]:
    return {_GPU if r == "gpu" else r: amount for r, amount in amounts.items()}


@pytest.mark.parametrize("number", CAPACITY_SCHEDULING)
def test_quotas_of_capacity_scheduling(number: str) -> None:
    (want,) = [m.groups() for line in lines("sp") if (m := _SP.fullmatch(line)) and m[1] == number]
    queues: dict[str, dict[str, Any]] = {}
    for name, one in zip("ab", CAPACITY_SCHEDULING[number], strict=True):
        if one:
            queues[name] = {what: _with_gpus(one[what]) for what in ("min", "max") if what in one}
    world = TreeWorld("capacity_scheduling", {"cpu": 100}, queues)
    for name, one in zip("ab", CAPACITY_SCHEDULING[number], strict=True):
        if one.get("uses"):
            world.put(name, **one["uses"])
    held = world.admit("a", **CAPACITY_SCHEDULING[number][0]["asks"])
    _, over_max, over_min = want
    # One answer says what holds first: the queue's own max, or the sum of all mins.
    assert (held is not None and held[0] == "a") == (over_max == "true")
    if over_max == "false":
        assert (held is not None and held[0] == "") == (over_min == "true")


# --- all --------------------------------------------------------------------------------------


def test_every_row_is_asked() -> None:
    asked = {
        "koord": set(KOORDINATOR),
        "kueue": set(KUEUE),
        "volcano": {*PROPORTION, *CAPACITY},
        "kai": set(KAI_QUEUES),
        "sp": set(CAPACITY_SCHEDULING),
    }
    for name, numbers in asked.items():
        assert numbers == set(blocks(name)), name
    # Those of `applications` and of pending pods are about the order inside a queue, and a tie.
    recorded = {m[1] for line in lines("yunikorn") if (m := _COMPARISON.fullmatch(line))}
    assert set(YUNIKORN) == recorded
    assert {name for name, _ in KNOWN} <= asked.keys()
