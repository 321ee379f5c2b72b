"""VolumeBinding: where a pod's claims let it go, and what is reserved for it there."""

from collections.abc import Sequence
from typing import Any

import pytest

from engine.core.framework.status import Code, Status
from engine.core.model.objects import from_plain
from engine.core.model.pod import Pod
from engine.core.model.storage import PersistentVolume, PersistentVolumeClaim
from engine.core.scheduling.placement import PreBindError
from engine.core.scheduling.plugins.volume_binding import VolumeBinding
from engine.core.scheduling.plugins.volume_plan import VolumePlan
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.files.world import World
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import ZONE, make_pod, node_manifest
from tests.storage_builders import (
    DRIVER,
    SELECTED_NODE,
    Json,
    capacity,
    claim,
    csi_driver,
    csi_node,
    storage_class,
    uses,
    volume,
)

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
WRONG_NODE = "node(s) didn't match PersistentVolume's node affinity"
NO_STORAGE = "node(s) did not have enough free storage"
NO_SUCH_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
NOT_BOUND = "pod has unbound immediate PersistentVolumeClaims"

LOCAL = storage_class("local")
MADE = storage_class("made", provisioner=DRIVER)


class Case:
    """The nodes `a` and `b` in the zones `x` and `y`, storage objects, and the plugin."""

    def __init__(self, *objects: Json) -> None:
        nodes = [node_manifest("a", zone="x"), node_manifest("b", zone="y")]
        self.world = World.from_manifests(nodes, [], objects)
        self.objects = self.world.cache.objects
        self.writer = Writer()
        self.plugin = VolumeBinding(self.objects, self.writer)

    def state(self, pod: Pod, **arguments: Any) -> Any:
        return self.plugin.pre_filter(pod, self.world.snapshot, arguments)

    def rejection(self, pod: Pod) -> str:
        """Why the pod is rejected whatever the nodes are."""
        status = self.state(pod)
        assert isinstance(status, Status)
        assert (status.code, status.plugin) == (Code.UNRESOLVABLE, "VolumeBinding")
        return status.message

    def verdicts(self, pod: Pod) -> dict[str, Sequence[str]]:
        """Per node the reasons against it; none if the pod may go there."""
        state = self.state(pod)
        assert not isinstance(state, Status), state
        found: dict[str, Sequence[str]] = {}
        for name in ("a", "b"):
            info = self.world.snapshot.info(name)
            assert info is not None
            status = self.plugin.filter(state, info)
            assert status is None or status.code is Code.UNRESOLVABLE
            found[name] = () if status is None else status.reasons
        return found

    def reserve(self, pod: Pod, node: str) -> Any:
        """The state of a pod that has its volumes reserved on *node*."""
        state = self.state(pod)
        assert self.plugin.reserve(state, pod, node) is None
        return state

    def put(self, kind: str, plain: Json) -> None:
        record: Any = PersistentVolume if kind == "persistentvolumes" else PersistentVolumeClaim
        self.objects.put(kind, from_plain(record, plain))


class Writer:
    """Takes plans instead of writing them."""

    def __init__(self) -> None:
        self.plans: list[tuple[str, VolumePlan, float]] = []

    async def bind(self, pod: Pod, node_name: str, plan: VolumePlan, seconds: float) -> None:
        self.plans.append((node_name, plan, seconds))


def using(*claims: str, **words: Any) -> Pod:
    return make_pod(volumes=uses(*claims), **words)


# --- pods ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param([], id="no volumes"),
        pytest.param([{"name": "v", "emptyDir": {}}], id="a directory of the node"),
        pytest.param([{"name": "v", "iscsi": {"iqn": "i"}}], id="a disk"),
    ],
)
def test_a_pod_without_claims_is_none_of_its_business(volumes: list[Json]) -> None:
    case = Case()
    assert case.state(make_pod(volumes=volumes)) is None


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([], 'persistentvolumeclaim "data" not found', id="missing"),
        pytest.param(
            [claim(volume="disk", phase="Lost")],
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "disk"',
            id="lost",
        ),
        pytest.param(
            [claim(deletionTimestamp="2026-01-01T00:00:00Z")],
            'persistentvolumeclaim "data" is being deleted',
            id="being deleted",
        ),
        pytest.param([claim()], NOT_BOUND, id="of a class that is not there"),
        pytest.param([claim(storage_class=None)], NOT_BOUND, id="of no class"),
        pytest.param(
            [claim(), storage_class("local", mode="Immediate")], NOT_BOUND, id="immediate"
        ),
        pytest.param(
            [claim(volume="disk", bound=False), LOCAL, volume()], NOT_BOUND, id="half bound"
        ),
    ],
)
def test_a_claim_that_no_node_can_help_rejects_the_pod(objects: list[Json], want: str) -> None:
    assert Case(*objects).rejection(using("data")) == want


def test_the_first_hopeless_claim_is_named() -> None:
    case = Case(claim("b", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert case.rejection(using("a", "b")) == 'persistentvolumeclaim "a" not found'


def test_a_claim_is_waited_for_that_the_pods_own_volume_asks_for() -> None:
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    pod = make_pod("p", uid="me", volumes=volumes)
    want = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert Case().rejection(pod) == want
    stranger = Case(claim("p-scratch", volume="disk"), volume())
    want = "PVC default/p-scratch was not created for pod default/p (pod is not owner)"
    assert stranger.rejection(pod) == want
    owner = [{"kind": "Pod", "name": "p", "uid": "me", "controller": True}]
    mine = Case(claim("p-scratch", volume="disk", ownerReferences=owner), volume(node="a"))
    assert mine.verdicts(pod) == {"a": (), "b": (WRONG_NODE,)}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [claim(), storage_class("local", mode=None)],
            'VolumeBindingMode not set for StorageClass "local"',
            id="class without a mode",
        ),
        pytest.param(
            [claim(size="a lot"), LOCAL],
            "persistentvolumeclaim default/data: requests.storage: want a quantity, got `a lot`",
            id="size is no quantity",
        ),
        pytest.param(
            [claim(selector={"matchLabels": {"!": "x"}}), LOCAL],
            "persistentvolumeclaim default/data: selector: key `!`: want [prefix/]name",
            id="selector makes no sense",
        ),
    ],
)
def test_what_makes_no_sense_costs_the_attempt_and_says_why(objects: list[Json], want: str) -> None:
    status = Case(*objects).state(using("data"))
    assert isinstance(status, Status)
    assert (status.code, status.message) == (Code.ERROR, want)


# --- bound claims ------------------------------------------------------------------------------


def test_a_pod_goes_where_its_bound_volumes_are() -> None:
    case = Case(claim(volume="disk"), volume(node="b"))
    assert case.verdicts(using("data")) == {"a": (WRONG_NODE,), "b": ()}


def test_a_bound_volume_that_is_gone_is_reported() -> None:
    case = Case(claim(volume="disk"))
    assert case.verdicts(using("data")) == dict.fromkeys("ab", (NO_SUCH_VOLUME,))


def test_bound_claims_are_looked_at_in_their_order() -> None:
    case = Case(claim("gone", volume="gone"), claim("far", volume="disk"), volume(node="c"))
    assert case.verdicts(using("far", "gone"))["a"] == (WRONG_NODE,)
    assert case.verdicts(using("gone", "far"))["a"] == (NO_SUCH_VOLUME,)


def test_a_node_says_everything_that_is_against_it() -> None:
    far = [claim("far", volume="disk"), volume(node="b")]
    case = Case(*far, claim("new"), LOCAL, volume("free", node="b"))
    assert case.verdicts(using("new", "far")) == {"a": (WRONG_NODE, NO_VOLUME), "b": ()}
    case = Case(claim("gone", volume="gone"), claim("new"), LOCAL)
    assert case.verdicts(using("new", "gone"))["a"] == (NO_VOLUME, NO_SUCH_VOLUME)


def test_a_node_whose_driver_took_over_knows_the_zone_by_the_drivers_label() -> None:
    disk = volume(
        zone="x",
        source={"awsElasticBlockStore": {"volumeID": "vol-1"}},
    )
    plain = Case(claim(volume="disk"), disk)
    assert plain.verdicts(using("data")) == {"a": (), "b": (WRONG_NODE,)}
    migrated = Case(claim(volume="disk"), disk, csi_node("a", migrated="kubernetes.io/aws-ebs"))
    assert migrated.verdicts(using("data")) == {"a": (WRONG_NODE,), "b": (WRONG_NODE,)}


def test_a_volume_that_its_driver_could_not_find_costs_the_attempt() -> None:
    disk = volume(source={"awsElasticBlockStore": {"volumeID": "aws://x/y"}})
    case = Case(claim(volume="disk"), disk, csi_node("a", migrated="kubernetes.io/aws-ebs"))
    info = case.world.snapshot.info("a")
    assert info is not None
    status = case.plugin.filter(case.state(using("data")), info)
    assert status is not None
    assert status.code is Code.ERROR
    assert status.message.startswith("could not translate pv: failed to translate")


# --- volumes that exist -----------------------------------------------------------------------


def test_a_claim_that_waits_needs_a_volume_that_the_node_reaches() -> None:
    case = Case(claim(), LOCAL, volume(node="b"))
    assert case.verdicts(using("data")) == {"a": (NO_VOLUME,), "b": ()}


def test_every_claim_needs_a_volume_of_its_own() -> None:
    one = Case(claim("small"), claim("large"), LOCAL, volume())
    assert one.verdicts(using("large", "small"))["a"] == (NO_VOLUME,)
    two = Case(claim("small"), claim("large"), LOCAL, volume("x"), volume("y"))
    assert two.verdicts(using("large", "small"))["a"] == ()


def test_small_claims_choose_first_so_that_large_ones_find_theirs() -> None:
    objects = [claim("large", size="5Gi"), claim("small"), LOCAL]
    case = Case(*objects, volume("v5", size="5Gi"), volume("v2", size="2Gi"))
    state = case.reserve(using("large", "small"), "a")
    chosen = {c.metadata.name: v.metadata.name for v, c in state.reserved.bindings}
    assert chosen == {"small": "v2", "large": "v5"}


def test_a_claim_that_two_volumes_of_the_pod_use_chooses_of_two_and_gets_one() -> None:
    """kube-scheduler matches each volume of the pod by itself, and would bind both."""
    pod = using("data", "data")
    assert Case(claim(), LOCAL, volume()).verdicts(pod)["a"] == (NO_VOLUME,)
    two = Case(claim(), LOCAL, volume("x"), volume("y"))
    assert two.verdicts(pod)["a"] == ()
    assert [v.metadata.name for v, _ in two.reserve(pod, "a").reserved.bindings] == ["x"]


def test_a_claim_that_found_a_volume_is_not_made_another() -> None:
    case = Case(claim(storage_class="made"), MADE, volume(storage_class="made"))
    reserved = case.reserve(using("data", "data"), "a").reserved
    assert (len(reserved.bindings), len(reserved.provisions)) == (1, 0)


# --- volumes that are made ----------------------------------------------------------------------


def test_without_a_volume_one_is_made() -> None:
    case = Case(claim(storage_class="made"), MADE)
    assert case.verdicts(using("data")) == {"a": (), "b": ()}


def test_volumes_are_made_where_the_class_allows() -> None:
    anywhere = storage_class("made", provisioner=DRIVER, topologies=[{ZONE: ["z"]}, {ZONE: ["y"]}])
    case = Case(claim(storage_class="made"), anywhere)
    assert case.verdicts(using("data")) == {"a": (NO_VOLUME,), "b": ()}
    nowhere = storage_class("made", provisioner=DRIVER, topologies=[{}])
    case = Case(claim(storage_class="made"), nowhere)
    assert case.verdicts(using("data"))["a"] == (NO_VOLUME,)


def test_volumes_are_made_where_the_driver_has_capacity() -> None:
    left = [capacity("a", "1Gi", node="a"), capacity("b", "10Gi", node="b")]
    objects = [claim(storage_class="made", size="5Gi"), MADE]
    case = Case(*objects, csi_driver(), *left)
    assert case.verdicts(using("data")) == {"a": (NO_STORAGE,), "b": ()}
    uncounted = Case(*objects, csi_driver(counts_storage=None), *left)
    assert uncounted.verdicts(using("data"))["a"] == ()
    no_driver = Case(*objects, *left)
    assert no_driver.verdicts(using("data"))["a"] == ()
    sizeless = Case(claim(storage_class="made", size=None), MADE, csi_driver())
    assert sizeless.verdicts(using("data"))["a"] == ()


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(capacity("a", "10Gi", node="a", largest="1Gi"), id="in too small pieces"),
        pytest.param(capacity("a", "10Gi"), id="nowhere"),
        pytest.param(capacity("a", "10Gi", node="a", storage_class="other"), id="other class"),
        pytest.param(capacity("a", "a lot", node="a"), id="no quantity"),
        pytest.param(capacity("a", None, node="a"), id="unknown"),
        pytest.param(
            capacity("a", "10Gi", topology={"matchLabels": {"!": "x"}}), id="nonsense where"
        ),
    ],
)
def test_storage_that_the_claim_cannot_have_is_no_capacity(left: Json) -> None:
    case = Case(claim(storage_class="made", size="5Gi"), MADE, csi_driver(), left)
    assert case.verdicts(using("data"))["a"] == (NO_STORAGE,)


def test_a_claim_whose_node_is_chosen_goes_nowhere_else() -> None:
    chosen = claim(storage_class="made", annotations={SELECTED_NODE: "b"})
    assert Case(chosen, MADE).verdicts(using("data")) == {"a": (NO_VOLUME,), "b": ()}


def test_nodes_that_are_alike_hear_the_same_and_others_what_is_theirs() -> None:
    """Nodes are told apart by the labels that the pod's claims look at, and by nothing else."""
    zonal = storage_class("made", provisioner=DRIVER, topologies=[{ZONE: ["x"]}])
    left = capacity(
        "a", "10Gi", topology={"matchExpressions": [{"key": "rack", "operator": "Exists"}]}
    )
    nodes = [
        node_manifest("a", zone="x", labels={"rack": "1"}),
        node_manifest("b", zone="x"),
        node_manifest("c", zone="y", labels={"rack": "1"}),
        node_manifest("d", zone="x", labels={"rack": "2", "other": "label"}),
    ]
    objects = [claim(storage_class="made"), zonal, csi_driver(), left]
    world = World.from_manifests(nodes, [], objects)
    plugin = VolumeBinding()
    state = plugin.pre_filter(using("data"), world.snapshot, {})
    got = {i.name: plugin.filter(state, i) for i in world.snapshot.infos if i is not None}
    assert {name: status and status.reasons for name, status in got.items()} == {
        "a": None,
        "b": (NO_STORAGE,),
        "c": (NO_VOLUME,),
        "d": None,
    }


# --- the reservation ----------------------------------------------------------------------------


def test_what_is_reserved_is_not_given_to_the_next_pod() -> None:
    case = Case(claim("one"), claim("two"), LOCAL, volume())
    case.reserve(using("one"), "a")
    assert case.verdicts(using("two"))["a"] == (NO_VOLUME,)
    assert case.verdicts(using("one"))["a"] == ()


def test_what_is_unreserved_is_available_again() -> None:
    case = Case(claim("one"), claim("two"), LOCAL, volume())
    pod = using("one")
    state = case.reserve(pod, "a")
    case.plugin.unreserve(state, pod, "a")
    case.plugin.unreserve(state, pod, "a")
    assert case.verdicts(using("two"))["a"] == ()


def test_a_second_pod_of_a_claim_follows_the_first_to_its_node() -> None:
    case = Case(claim(storage_class="made"), MADE)
    first, second = using("data", name="first"), using("data", name="second")
    state = case.reserve(first, "b")
    assert case.verdicts(second) == {"a": (NO_VOLUME,), "b": ()}
    case.plugin.unreserve(case.reserve(second, "b"), second, "b")
    assert case.verdicts(second)["a"] == (NO_VOLUME,), "the first pod's reservation stands"
    case.plugin.unreserve(state, first, "b")
    assert case.verdicts(second)["a"] == ()


def test_news_of_the_watch_end_the_assumption() -> None:
    case = Case(claim("one"), claim("two"), LOCAL, volume())
    pod = using("one")
    state = case.reserve(pod, "a")
    case.put("persistentvolumes", volume(resourceVersion="2"))
    assert case.verdicts(using("two"))["a"] == ()
    case.plugin.unreserve(state, pod, "a")


def test_a_volume_is_reserved_with_the_claims_reference() -> None:
    case = Case(claim(), LOCAL, volume())
    ((reserved, _),) = case.reserve(using("data"), "a").reserved.bindings
    ref = reserved.spec.claim_ref
    assert (ref.kind, ref.api_version, ref.namespace) == ("PersistentVolumeClaim", "v1", "default")
    assert (ref.name, ref.uid, ref.resource_version) == ("data", "data-uid", "1")
    assert reserved.metadata.annotations == {"pv.kubernetes.io/bound-by-controller": "yes"}


def test_a_volume_that_its_owner_made_for_the_claim_stays_the_owners() -> None:
    mine = {"name": "data", "namespace": "default"}
    case = Case(claim(), LOCAL, volume(claimed_by=mine))
    ((reserved, _),) = case.reserve(using("data"), "a").reserved.bindings
    assert reserved.spec.claim_ref.uid == "data-uid"
    assert reserved.metadata.annotations == {}


def test_a_decision_that_others_overtook_is_refused() -> None:
    case = Case(claim("one"), claim("two"), LOCAL, volume())
    early, late = using("one"), using("two")
    state = case.state(early)
    case.reserve(late, "a")
    status = case.plugin.reserve(state, early, "a")
    assert status is not None
    assert (status.code, status.message) == (Code.UNSCHEDULABLE, '"disk" is out of sync')
    case.plugin.unreserve(state, early, "a")
    assert case.verdicts(early)["a"] == (NO_VOLUME,), "the other pod's reservation stands"


def test_a_decision_about_another_cluster_assumes_nothing_in_this_one() -> None:
    case = Case(claim(), LOCAL, volume())
    other = Case(claim(), LOCAL, volume())
    state = case.plugin.pre_filter(using("data"), other.world.snapshot, {})
    assert case.plugin.reserve(state, using("data"), "a") is None
    case.put("persistentvolumeclaims", claim("two"))
    assert case.verdicts(using("two"))["a"] == ()


@pytest.mark.parametrize("off", ["filter", "preFilter", "multiPoint"])
def test_a_profile_that_has_it_off_places_pods_without_volumes(off: str) -> None:
    """With the filter alone off, nodes were rejected all the same."""
    config = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {{{off}: {{disabled: [{{name: VolumeBinding}}]}}}}
"""
    bundle = build_bundle({"config.yaml": config}, None)
    scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
    case = Case(claim("none"), claim("one"), LOCAL, volume(claim="one"))
    for pod in (using("none"), using("one")):
        decision = scheduler.schedule(pod, case.world.snapshot)
        assert decision.node is not None
        assert decision.reserves == ()


async def test_the_reservation_is_written_before_the_binding() -> None:
    case = Case(claim("old"), claim("new", storage_class="made"), LOCAL, MADE, volume())
    pod = using("old", "new")
    state = case.state(pod, bindTimeoutSeconds=7)
    case.plugin.reserve(state, pod, "a")
    await case.plugin.pre_bind(state, pod, "a")
    ((node, plan, seconds),) = case.writer.plans
    assert (node, seconds) == ("a", 7.0)
    assert [v.metadata.name for v, _ in plan.bindings] == ["disk"]
    assert [c.metadata.annotations[SELECTED_NODE] for c in plan.provisions] == ["a"]


async def test_nothing_is_written_for_claims_that_are_bound() -> None:
    case = Case(claim(volume="disk"), volume())
    pod = using("data")
    state = case.reserve(pod, "a")
    await case.plugin.pre_bind(state, pod, "a")
    assert case.writer.plans == []


async def test_ten_minutes_are_waited_by_default() -> None:
    case = Case(claim(), LOCAL, volume())
    pod = using("data")
    await case.plugin.pre_bind(case.reserve(pod, "a"), pod, "a")
    assert case.writer.plans[0][2] == 600.0


async def test_without_a_writer_nothing_pretends_to_be_bound() -> None:
    case = Case(claim(), LOCAL, volume())
    plugin = VolumeBinding(case.objects)
    pod = using("data")
    state = plugin.pre_filter(pod, case.world.snapshot, {})
    plugin.reserve(state, pod, "a")
    with pytest.raises(PreBindError):
        await plugin.pre_bind(state, pod, "a")
