"""Every field that other objects change, read by every hook, by a scheduler that remembers.

For each such field a cluster, a change of another object by which the field says something else,
and an expression that is true only afterwards. A scheduler that has decided before the change
decides after it as a new one does, and a new one decides otherwise than before: the hook was asked
again because of the change. A field that gets a `changed_by` needs a row here.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from engine.core.caching.cache import Cache
from engine.core.framework.behaviors import behaviors_of
from engine.core.model.fact import Fact, NodeFacts
from engine.core.model.node import Node
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import OBJECT_KINDS
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.views import VIEWS
from tests.builders import make_node, make_pod
from tests.properties.sameness import decided, explained
from tests.storage_builders import DRIVER, claim, csi_node, storage_class, uses, volume
from tests.workloads import owned_by, replica_set, workload

Change = Callable[[Cache], None]
Json = dict[str, Any]

_IMAGE: Final = "registry.example/web:1"
_GPU: Final = "example.com/gpu"


@dataclass(frozen=True)
class Case:
    """A field that a change of something else changes.

    Attributes:
        marked: Starlark that is true afterwards alone; `{0}` is the view.
        change: What happens.
        words: Of the pods that the field is read of.
        objects: What is there from the beginning.
    """

    marked: str
    change: Change
    words: Json = field(default_factory=dict)
    objects: tuple[Json, ...] = ()


def _put(*objects: Json) -> Change:
    def change(cache: Cache) -> None:
        for plain in objects:
            plural, record = OBJECT_KINDS[plain["kind"]]
            made: Any = from_plain(record, plain)
            cache.objects.put(plural, made)

    return change


def _extra(**words: Any) -> Change:
    """One more pod comes to node a."""
    return lambda cache: cache.add_pod(make_pod("extra", node="a", **words))


def _facts_of_node(cache: Cache) -> None:
    heat = Fact(9, "9")
    cache.set_node_facts("a", NodeFacts({"heat": heat}, {"reward": {"web": heat}}))


def _facts_of_types(cache: Cache) -> None:
    cache.set_other_facts(cluster={}, types={"web": {"heat": Fact(9, "9")}}, pods={})


def _facts_of_cluster(cache: Cache) -> None:
    cache.set_other_facts(cluster={"price": Fact(9, "9")}, types={}, pods={})


def _namespace(name: str, **labels: str) -> Json:
    return {"kind": "Namespace", "metadata": {"name": name, "labels": labels}}


_SERVICE: Final = {
    "kind": "Service",
    "metadata": {"name": "front", "namespace": "default"},
    "spec": {"selector": {"app": "web"}},
}
_CLASS: Final = {
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": _GPU},
}
_ATTACHMENT: Final = {
    "kind": "VolumeAttachment",
    "metadata": {"name": "attached"},
    "spec": {
        "attacher": DRIVER,
        "nodeName": "a",
        "source": {"persistentVolumeName": "other"},
    },
}
# A claim that many pods may use, on a disk of the driver.
_DISK: Final = (
    claim("c0", volume="v0", storage_class="made", modes=["ReadWriteMany"]),
    volume("v0", source={"csi": {"driver": DRIVER, "volumeHandle": "h0"}}),
    volume("other", source={"csi": {"driver": DRIVER, "volumeHandle": "h9"}}),
    storage_class("made", provisioner=DRIVER),
    csi_node("a", limits={DRIVER: 9}),
)
_MOUNTED: Final[Json] = {"volumes": uses("c0")}
_LOST: Final = claim("c0", volume="v0", storage_class="made", modes=["ReadWriteMany"], phase="Lost")
_ONE_POD: Final = claim("c0", volume="v0", modes=["ReadWriteOncePod"])

_NEAR_MARKED: Final = {
    "podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"app": "web"}},
                "namespaceSelector": {"matchLabels": {"marked": "yes"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
}


def _upgrade(cache: Cache) -> None:
    cache.objects.behaves = behaviors_of(38)


CASES: Final[dict[tuple[str, str], Case]] = {
    ("pod", "namespace_labels"): Case(
        '"marked" in {0}.namespace_labels',
        _put(_namespace("team", marked="yes")),
        {"namespace": "team"},
        (_namespace("team"),),
    ),
    ("pod", "meets_own_affinity"): Case(
        "{0}.meets_own_affinity and {0}.pod_affinity != None",  # also True without any
        _put(_namespace("team", marked="yes")),
        {"namespace": "team", "labels": {"app": "web"}, "affinity": _NEAR_MARKED},
        (_namespace("team"),),
    ),
    ("pod", "spread_selector"): Case(
        "{0}.spread_selector != None", _put(_SERVICE), {"labels": {"app": "web"}}
    ),
    ("pod", "workload"): Case(
        "{0}.workload != None and {0}.workload.replicas == 7",
        _put(workload("Deployment", replicas=7)),
        {"owner": owned_by("ReplicaSet", "web-1")},
        (
            replica_set("web-1", owner=owned_by("Deployment", "web")),
            workload("Deployment", replicas=3),
        ),
    ),
    ("pod", "volumes"): Case('"Lost" in str({0}.volumes)', _put(_LOST), _MOUNTED, _DISK),
    ("pod", "unnamed_volumes"): Case(
        '"Lost" in str({0}.unnamed_volumes)', _put(_LOST), _MOUNTED, _DISK
    ),
    ("pod", "exclusive_claims"): Case(
        '"b" in str({0}.exclusive_claims.values())',
        lambda cache: cache.add_pod(make_pod("extra", node="b", volumes=uses("c0"))),
        _MOUNTED,
        (_ONE_POD,),
    ),
    ("pod", "device_resources"): Case(
        "len({0}.device_resources) > 0", _put(_CLASS), {"requests": {_GPU: 1}}
    ),
    ("pod", "scoring_requests"): Case(
        '{0}.scoring_requests.get("memory", 0) > 250 << 20',
        _upgrade,
        # Containers that request none are taken for 200 MiB.
        {"resources": {"requests": {"memory": "300Mi"}}},
    ),
    ("pod", "type"): Case(
        '{0}.type == "red"',
        lambda cache: cache.set_pod_type_labels(["color"]),
        {"labels": {"color": "red", "app": "web"}},
    ),
    ("pod", "facts"): Case(
        '{0}.facts["heat"] != None', _facts_of_types, {"labels": {"app": "web"}}
    ),
    ("node", "images"): Case(
        f'{{0}}.name == "a" and {{0}}.images["{_IMAGE}"].node_count > 1',
        lambda cache: cache.add_node(_node("b", images={_IMAGE: 1 << 20})),
    ),
    ("node", "requested"): Case('{0}.requested.get("cpu", 0) > 1800', _extra(cpu="50m")),
    ("node", "wanted_requested"): Case(
        '{0}.wanted_requested.get("cpu", 0) > 1800', _extra(cpu="50m")
    ),
    ("node", "limits"): Case(
        '{0}.limits.get("memory", 0) > 0', _extra(limits={"memory": "1Mi"}, requests={})
    ),
    ("node", "nonzero_requested"): Case(
        '{0}.nonzero_requested.get("cpu", 0) > 1800', _extra(cpu="50m")
    ),
    ("node", "pod_count"): Case("{0}.pod_count > 2", _extra()),
    ("node", "used_ports"): Case("len({0}.used_ports) > 0", _extra(ports=[8080])),
    ("node", "used_disks"): Case(
        "len({0}.used_disks) > 0",
        _extra(volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "g"}}]),
    ),
    ("node", "used_claims"): Case("len({0}.used_claims) > 0", _extra(**_MOUNTED), {}, _DISK),
    ("node", "volume_limits"): Case(
        f'{{0}}.volume_limits.get("{DRIVER}") == 3', _put(csi_node("a", limits={DRIVER: 3}))
    ),
    ("node", "csi_drivers"): Case(
        "{0}.csi_drivers != None", _put(csi_node("a", limits={DRIVER: 3}))
    ),
    ("node", "volumes_in_use"): Case(
        '"h0" in str({0}.volumes_in_use)', _extra(**_MOUNTED), {}, _DISK
    ),
    ("node", "volume_counts"): Case(
        f'{{0}}.volume_counts.get("{DRIVER}", 0) > 0', _extra(**_MOUNTED), {}, _DISK
    ),
    ("node", "wanted_volumes"): Case(
        "len({0}.wanted_volumes) > 0",
        _extra(**_MOUNTED),
        _MOUNTED,
        _DISK,
    ),
    ("node", "other_attached_volumes"): Case(
        "len({0}.other_attached_volumes) > 0", _put(_ATTACHMENT), {}, _DISK
    ),
    ("node", "pod_annotations"): Case(
        'len({0}.pod_annotations["noted"]) > 0', _extra(annotations={"noted": "yes"})
    ),
    ("node", "device_shares"): Case(
        '{0}.device_shares["example.com/gpu-"][0] < 1000',
        _extra(annotations={"example.com/gpu-milli": "500", "example.com/gpu-count": "1"}),
    ),
    ("node", "facts"): Case('{0}.facts["heat"] != None', _facts_of_node),
    ("node", "pod_facts"): Case('len({0}.pod_facts["reward"]) > 0', _facts_of_node),
    ("cluster", "node_count"): Case(
        "{0}.node_count > 2", lambda cache: cache.add_node(make_node("c", cpu=0))
    ),
    ("cluster", "facts"): Case('{0}.facts["price"] != None', _facts_of_cluster),
    ("cluster", "kubernetes_minor"): Case("{0}.kubernetes_minor > 37", _upgrade),
    ("cluster", "behaves"): Case('{0}.behaves["victims_by_uid"]', _upgrade),
}

# By view, each hook that sees it, with a text in which `{marked}` says that the change was seen.
HOOKS: Final[dict[str, dict[str, str]]] = {
    "pod": {
        "group_of": 'def group_of(pod):\n    return gang("g", 2) if {marked} else None',
        "queue_key": "def queue_key(pod):\n    return 1 if {marked} else 0",
        "pre_enqueue": 'def pre_enqueue(pod):\n    return "marked" if {marked} else None',
        "permit": 'def permit(pod, group):\n    return "marked" if {marked} else None',
        "counters": """def counters(pod):
    app = "no" if {marked} else "any"
    return [count_pods(None, labels = {"app": app}, namespaces = ["default"])]

def score(pod, node, counts):
    return min(100, counts[0].total)""",
        "pre_filter": 'def pre_filter(pod):\n    return reject("marked") if {marked} else None',
        "pre_filter state": """def pre_filter(pod):
    return state(left = 50 if {marked} else 10)

def score(pod, node, state):
    return state.left""",
        "filter": 'def filter(pod, node):\n    return "marked" if {marked} else None',
        "pre_score": """def pre_score(pod):
    return skip() if {marked} else None

def score(pod, node):
    return 10""",
        "score": "def score(pod, node):\n    return 50 if {marked} else 10",
        "score_all": "def score_all(pod, nodes):\n"
        "    return [50 if {marked} else 10 for _ in nodes]",
        "tie_key": 'def tie_key(pod, node):\n    return 1 if {marked} == (node.name == "a") else 0',
        "annotate": 'def annotate(pod, node):\n    return {"x": "marked"} if {marked} else None',
        "among_": """def counters(pod):
    return [count_pods(None, labels = {"app": "any"}, namespaces = ["default"], among = "among_x")]

def among_x(pod, node):
    return not {marked}

def score(pod, node, counts):
    return min(100, counts[0].total)""",
        "victim_key": "def victim_key(pod):\n    return None if {marked} else (pod.name,)",
        "candidate_key": """def candidate_key(node, victims):
    return (len([pod for pod in victims if {marked}]), node.name)""",
    },
    "node": {
        "filter": 'def filter(pod, node):\n    return "marked" if {marked} else None',
        "score": "def score(pod, node):\n    return 50 if {marked} else 10",
        "score_all": "def score_all(pod, nodes):\n"
        "    return [50 if {marked} else 10 for node in nodes]",
        "tie_key": "def tie_key(pod, node):\n    return (1 if {marked} else 0, node.name)",
        "annotate": """def tie_key(pod, node):
    return node.name

def annotate(pod, node):
    return {"x": "marked"} if {marked} else None""",
        "among_": """def counters(pod):
    return [count_pods(None, labels = {"app": "any"}, namespaces = ["default"], among = "among_x")]

def among_x(pod, node):
    return not {marked}

def score(pod, node, counts):
    return min(100, counts[0].total)""",
        "candidate_key": "def candidate_key(node, victims):\n"
        "    return (1 if {marked} else 0, node.name)",
    },
    "cluster": {
        "pre_filter": "def pre_filter(pod, cluster):\n"
        '    return reject("marked") if {marked} else None',
        "filter": 'def filter(pod, node, cluster):\n    return "marked" if {marked} else None',
        "pre_score": """def pre_score(pod, cluster):
    return skip() if {marked} else None

def score(pod, node):
    return 10""",
        "score": "def score(pod, node, cluster):\n    return 50 if {marked} else 10",
        "among_": """def counters(pod):
    return [count_pods(None, labels = {"app": "any"}, namespaces = ["default"], among = "among_x")]

def among_x(pod, node, cluster):
    return not {marked}

def score(pod, node, counts):
    return min(100, counts[0].total)""",
    },
}
# What needs a pod that has to evict others, and whose fields it reads.
_EVICTS: Final = ("victim_key", "candidate_key")
# Resources are filtered by and not scored: nodes a and b are equally good.
_PROFILE: Final = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint: {{disabled: [{{name: "*"}}], enabled: [{{name: DefaultBinder}}{reads}]}}
    queueSort: {{enabled: [{sorts}]}}
    preFilter: {{enabled: [{{name: NodeResourcesFit}}]}}
    filter: {{enabled: [{{name: NodeResourcesFit}}]}}
    postFilter: {{enabled: [{{name: DefaultPreemption}}{evicts}]}}
"""


def _node(name: str, **words: Any) -> Node:
    offered = {_GPU: 4, "example.com/gpu-count": 1}
    return make_node(name, cpu=2, allocatable=offered, **words)


def _cluster(case: Case, view: str) -> Cache:
    """Two nodes with two pods each, so full that an urgent pod has to evict one of them."""
    cache = Cache()
    for name in ("a", "b"):
        cache.add_node(_node(name, images={_IMAGE: 1 << 20} if name == "a" else None))
    _put(*case.objects)(cache)
    for node in ("a", "b"):
        for number in range(2):
            # The second one of node a is the one that the field is read of.
            is_read = view == "pod" and (node, number) == ("a", 1)
            words: Json = {"labels": {"app": "any"}, **(case.words if is_read else {})}
            requests = {"cpu": "900m", **words.pop("requests", {})}
            started = f"2026-01-01T00:0{number}:00Z"
            name = f"{node}-{number}"
            cache.add_pod(
                make_pod(name, node=node, uid=name, requests=requests, start_time=started, **words)
            )
    return cache


def _asking(case: Case, hook: str, number: int) -> Pod:
    """The pod that is decided; one of the same kind each time."""
    words = dict(case.words)
    requests = dict(words.pop("requests", {}))
    if hook in _EVICTS:
        # The field is read of placed pods here.
        words, requests = {}, {}
        requests["cpu"] = "1"
        words["priority"] = 100
    else:
        requests["cpu"] = "10m"
    return make_pod(f"p{number}", uid="same", requests=requests, **words)


def _answer(scheduler: Scheduler, hook: str, pod: Pod, cache: Cache) -> Any:
    """Everything that is decided about *pod*, or what a hook of the queue says of it."""
    snapshot, hooks = cache.snapshot(), scheduler.hooks
    if hook == "queue_key":
        return hooks.queue_key(pod, snapshot)
    if hook == "pre_enqueue":
        return hooks.pre_enqueue(pod, snapshot)
    if hook == "permit":
        return hooks.permit(pod, snapshot)
    if hook == "group_of":
        profile = scheduler.bundle.profiles[0]
        (enabled,) = {e.instance: e for e in profile.at("permit") if e.policy == "reads"}.values()
        return hooks.group_of(enabled, pod, snapshot)
    if hook in ("annotate", *_EVICTS):
        return decided(scheduler.schedule(pod, snapshot))
    return explained(scheduler.explain(pod, snapshot))


def _bundle(case: Case, view: str, hook: str) -> Bundle:
    text = HOOKS[view][hook].replace("{marked}", f"({case.marked.format(view)})")
    if hook == "group_of":
        text += "\n\ndef permit(pod, group):\n    return None"
    profile = _PROFILE.format(
        sorts="" if hook == "queue_key" else "{name: PrioritySort}",
        # The last one that is enabled there counts.
        reads="" if hook in _EVICTS else ", {name: reads}",
        evicts=", {name: reads}" if hook in _EVICTS else "",
    )
    return build_bundle({"reads.star": f'"""Reads it."""\n\n{text}\n', "profile.yaml": profile})


def test_every_field_that_others_change_has_a_case_here() -> None:
    want = {
        (view, name)
        for view, fields in VIEWS.items()
        for name, field_ in fields.items()
        if field_.changed_by
    }
    assert set(CASES) == want


@pytest.mark.parametrize(("view", "name"), CASES)
def test_a_scheduler_that_remembers_sees_what_others_changed(view: str, name: str) -> None:
    """A pod that the policy never evicts was evicted.

    Trials of evictions were kept although `victim_key` read `pod.exclusive_claims`: the list of
    fields that others change was kept by hand next to the table of views, and lacked it.
    """
    case = CASES[view, name]
    for hook in HOOKS[view]:
        if VIEWS[view][name].wanted is not None and hook not in ("filter", "score"):
            continue  # cut to a pod, which these hooks are not given
        bundle = _bundle(case, view, hook)
        evaluator = InProcessEvaluator(bundle.program)
        cache = _cluster(case, view)
        remembers = Scheduler(bundle, evaluator)
        before = [_answer(remembers, hook, _asking(case, hook, n), cache) for n in range(2)]
        assert before[0] == before[1]

        case.change(cache)

        got = _answer(remembers, hook, _asking(case, hook, 2), cache)
        want = _answer(Scheduler(bundle, evaluator), hook, _asking(case, hook, 3), cache)
        assert got == want, hook
        assert want != before[0], f"{hook}: the change makes no difference"
