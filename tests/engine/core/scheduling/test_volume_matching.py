"""The volume that a claim gets on a node."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.core.model.objects import from_plain
from engine.core.model.quantity import nano_value
from engine.core.model.selectors import matches_node_selector
from engine.core.model.storage import PersistentVolume, PersistentVolumeClaim
from engine.core.scheduling.plugins.volume_matching import ClaimCandidates, Reach, Reaches, is_for
from tests.builders import HOSTNAME, ZONE
from tests.storage_builders import Json, claim, need, volume

LABELS = {
    "a": {HOSTNAME: "a", ZONE: "x", "n": "1"},
    "b": {HOSTNAME: "b", ZONE: "x"},
    "c": {HOSTNAME: "c", "n": "7"},
}


def _volume(plain: Json) -> PersistentVolume:
    return from_plain(PersistentVolume, plain)


def _choose(wanted: Json, volumes: list[Json], node: str = "a", taken: Any = ()) -> str | None:
    candidates = ClaimCandidates(
        from_plain(PersistentVolumeClaim, wanted), [_volume(v) for v in volumes], Reaches()
    )
    chosen = candidates.choose(LABELS[node], taken)
    return None if chosen is None else chosen.metadata.name


def test_the_smallest_that_is_large_enough_is_chosen() -> None:
    sizes = {"huge": "1Ti", "small": "1Gi", "right": "2Gi", "large": "3000Mi"}
    volumes = [volume(name, size=size) for name, size in sizes.items()]
    assert _choose(claim(size="1500Mi"), volumes) == "right"
    assert _choose(claim(size="1500Mi"), volumes, taken={"right"}) == "large"
    assert _choose(claim(size="2Ti"), volumes) is None


def test_of_equally_large_ones_the_first_is_chosen() -> None:
    assert _choose(claim(), [volume("b"), volume("a")]) == "b"


def test_a_volume_that_the_node_does_not_reach_is_left() -> None:
    volumes = [volume("far", node="b"), volume("near", node=["c", "a"], size="5Gi")]
    assert _choose(claim(), volumes) == "near"
    assert _choose(claim(), volumes, node="b") == "far"
    assert _choose(claim(), [volume("zonal", zone="x")], node="c") is None


def test_a_volume_that_does_not_suit_is_left() -> None:
    other = {"name": "other", "namespace": "default", "uid": "u"}
    unsuitable: list[Json] = [
        volume(storage_class="other"),
        volume(modes=["ReadOnlyMany"]),
        volume(volume_mode="Block"),
        volume(phase="Released"),
        volume(claimed_by=other, phase="Available"),
        volume(deletionTimestamp="2026-01-01T00:00:00Z"),
        volume(size="1Mi"),
        volume(size="a lot"),
        volume(annotations={"volume.beta.kubernetes.io/storage-class": "other"}),
    ]
    for plain in unsuitable:
        assert _choose(claim(), [plain]) is None, plain
    assert _choose(claim(), [volume()]) == "disk"


def test_an_absent_mode_is_a_file_system() -> None:
    assert _choose(claim(volume_mode="Filesystem"), [volume()]) == "disk"
    assert _choose(claim(volume_mode="Block"), [volume()]) is None


def test_a_claims_selector_looks_at_the_volumes_labels() -> None:
    wanted = claim(selector={"matchLabels": {"disk": "ssd"}})
    assert _choose(wanted, [volume("a"), volume("b", labels={"disk": "ssd"})]) == "b"


def test_a_volume_that_was_made_for_the_claim_is_the_only_choice() -> None:
    mine = {"name": "data", "namespace": "default"}
    volumes = [volume("free"), volume("mine", size="9Gi", node="b", claimed_by=mine, phase="")]
    assert _choose(claim(), volumes, node="b") == "mine"
    assert _choose(claim(), volumes, node="a") is None


def test_a_reference_to_an_earlier_claim_of_that_name_is_not_to_this_one() -> None:
    earlier = {"name": "data", "namespace": "default", "uid": "old"}
    assert _choose(claim(), [volume(claimed_by=earlier)]) is None


def test_an_affinity_that_makes_no_sense_is_met_by_no_node() -> None:
    for term in (
        {},
        {"matchExpressions": [need("n", "1", "2", operator="Gt")]},
        {"matchFields": [need("metadata.name", "a", "b")]},
    ):
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        assert _choose(claim(), [volume(affinity=affinity)]) is None, term


def test_an_affinity_says_nothing_by_names_of_nodes() -> None:
    """kube-scheduler asks with a node that has labels alone; we took it for a node called ""."""
    names = {"matchFields": [need("metadata.name", "elsewhere")]}
    for term, want in [
        (names, "disk"),
        ({**names, "matchExpressions": [need(HOSTNAME, "a")]}, "disk"),
        ({**names, "matchExpressions": [need(HOSTNAME, "b")]}, None),
    ]:
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        assert _choose(claim(), [volume(affinity=affinity)], node="a") == want, term


# --- beside a search that looks at everything ------------------------------------------------

_terms = st.lists(
    st.fixed_dictionaries(
        {
            "matchExpressions": st.lists(
                st.one_of(
                    st.builds(
                        need,
                        st.sampled_from([HOSTNAME, ZONE, "n"]),
                        st.sampled_from(["a", "b", "x", "1"]),
                        st.sampled_from(["c", "7", ""]),
                        operator=st.sampled_from(["In", "NotIn"]),
                    ),
                    st.builds(need, st.just("n"), st.just("3"), operator=st.just("Gt")),
                    st.just(need("n", operator="Exists")),
                    st.just(need("n", "x", operator="Gt")),
                ),
                max_size=3,
            )
        }
    ),
    max_size=3,
)
_affinities = st.one_of(
    st.none(), st.builds(lambda terms: {"required": {"nodeSelectorTerms": terms}}, _terms)
)


@given(_affinities, st.sampled_from(sorted(LABELS)))
def test_a_compiled_affinity_means_the_same_nodes(affinity: Json | None, node: str) -> None:
    required = None if affinity is None else _volume(volume(affinity=affinity)).spec.node_affinity
    selector = None if required is None else required.required
    want = matches_node_selector(selector, LABELS[node], "")
    assert Reach(selector).includes(LABELS[node]) is want


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["1Gi", "2Gi", "3Gi"]),
            _affinities,
            st.sampled_from(["", "", "", "data", "other"]),
            st.sampled_from(["Available", "Available", "Bound"]),
        ),
        max_size=8,
    ),
    st.sampled_from(sorted(LABELS)),
    st.sets(st.sampled_from(["v0", "v1", "v2"])),
    st.sampled_from(["1Gi", "2Gi"]),
)
def test_the_choice_is_that_of_a_search_through_all(
    given_volumes: list[tuple[str, Json | None, str, str]], node: str, taken: set[str], size: str
) -> None:
    volumes = [
        volume(
            f"v{i}",
            size=large,
            affinity=affinity,
            phase=phase,
            claimed_by={"name": owner, "namespace": "default"} if owner else None,
        )
        for i, (large, affinity, owner, phase) in enumerate(given_volumes)
    ]
    wanted = from_plain(PersistentVolumeClaim, claim(size=size))
    assert _choose(claim(size=size), volumes, node, taken) == _search(
        wanted, [_volume(v) for v in volumes], LABELS[node], taken
    )


def _search(
    wanted: PersistentVolumeClaim,
    volumes: list[PersistentVolume],
    labels: dict[str, str],
    taken: set[str],
) -> str | None:
    """Volume by volume, as they come."""
    best: PersistentVolume | None = None
    for found in volumes:
        affinity = found.spec.node_affinity
        reached = matches_node_selector(None if affinity is None else affinity.required, labels, "")
        if found.metadata.name in taken or _bytes(found) < _bytes_of("storage", wanted):
            continue
        if is_for(found, wanted):
            return found.metadata.name if reached else None
        if found.spec.claim_ref is not None or found.status.phase != "Available" or not reached:
            continue
        if best is None or _bytes(found) < _bytes(best):
            best = found
    return None if best is None else best.metadata.name


def _bytes(found: PersistentVolume) -> int:
    return nano_value(found.spec.capacity["storage"])


def _bytes_of(name: str, wanted: PersistentVolumeClaim) -> int:
    return nano_value(wanted.spec.resources.requests[name])
