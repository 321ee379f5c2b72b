"""What holds of merged answers whatever extenders say; and both ends read what the other writes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.core.framework.extender import Extender, ExtenderError
from engine.core.framework.status import Code
from engine.core.model.node_info import NodeInfo
from engine.core.scheduling import extender_messages as messages
from engine.core.scheduling.extender_merging import FilterMerge
from engine.core.scheduling.extender_messages import FilterResult, MetaVictims
from engine.core.scheduling.extenders import NodeVictims
from engine.surfaces.extender_server import requests
from tests.builders import make_node, make_pod

NAMES = st.sampled_from(["a", "b", "c", "d", "stranger"])
INFOS = {name: NodeInfo(name, make_node(name)) for name in ("a", "b", "c", "d")}
REASONS = st.dictionaries(NAMES, st.sampled_from(["", "full", "odd"]))
LISTS = st.none() | st.lists(NAMES).map(tuple)
RESULTS = st.builds(
    FilterResult,
    nodes=LISTS,
    node_names=LISTS,
    failed=REASONS,
    unresolvable=REASONS,
    error=st.sampled_from(["", "", "", "broken"]),
)


@given(
    asked=st.sets(st.sampled_from(sorted(INFOS))),
    results=st.lists(st.tuples(st.booleans(), RESULTS), max_size=4),
)
def test_every_node_is_left_or_rejected_and_none_comes_back(
    asked: set[str], results: list[tuple[bool, FilterResult]]
) -> None:
    merge = FilterMerge(INFOS[name] for name in sorted(asked))
    left = set(asked)
    for cached, result in results:
        extender = Extender(url_prefix="http://x", node_cache_capable=cached)
        before = merge.answer()
        try:
            merge.take(extender, result)
        except ExtenderError:
            assert merge.answer() == before
        assert set(merge.left) <= left
        left = set(merge.left)
    answer = merge.answer()
    assert set(answer.feasible) == left
    assert left.isdisjoint(answer.rejected)
    assert left | answer.rejected.keys() >= asked
    assert all(status.is_rejection for status in answer.rejected.values())


@given(failed=REASONS, unresolvable=REASONS)
def test_a_node_in_both_maps_is_unresolvable(
    failed: dict[str, str], unresolvable: dict[str, str]
) -> None:
    merge = FilterMerge(INFOS.values())
    merge.take(
        Extender(url_prefix="http://x"),
        FilterResult(nodes=(), failed=failed, unresolvable=unresolvable),
    )
    rejected = merge.answer().rejected
    for name in failed.keys() | unresolvable.keys():
        want = Code.UNRESOLVABLE if name in unresolvable else Code.UNSCHEDULABLE
        assert rejected[name].code is want


# --- both ends ----------------------------------------------------------------------------------

TEXTS = st.text(min_size=1, max_size=8)
VICTIMS = st.dictionaries(
    TEXTS, st.tuples(st.lists(TEXTS, unique=True, max_size=3), st.integers(0, 5)), max_size=4
)


@pytest.mark.slow("computes for long")
@given(victims=VICTIMS, meta=st.booleans())
def test_the_server_reads_the_victims_that_the_client_writes(
    victims: dict[str, tuple[list[str], int]], meta: bool
) -> None:
    sent = {
        node: NodeVictims(tuple(make_pod("v", uid=uid) for uid in uids), violations)
        for node, (uids, violations) in victims.items()
    }
    asked = requests.read_victims_request(
        messages.victims_request(make_pod("p", uid="me"), sent, meta=meta)
    )
    assert asked.pod.uid == "me"
    want = {node: MetaVictims(tuple(uids), count) for node, (uids, count) in victims.items()}
    assert asked.victims == want
    answer = requests.victims_answer(asked.victims, list(victims))
    assert messages.preemption_result(answer) == want


@pytest.mark.slow("compares much")
@given(
    names=st.lists(TEXTS, unique=True, max_size=5),
    whole=st.booleans(),
    failed=st.dictionaries(TEXTS, TEXTS),
    unresolvable=st.dictionaries(TEXTS, TEXTS),
)
def test_the_client_reads_the_verdicts_that_the_server_writes(
    names: list[str], whole: bool, failed: dict[str, str], unresolvable: dict[str, str]
) -> None:
    texts = [messages.node_text(make_node(name)) for name in names]
    pod = make_pod("p")
    body = messages.nodes_request(pod, texts if whole else None, None if whole else names)
    asked = requests.read_nodes_request(body)
    assert asked.names == tuple(names)
    kept = tuple(names[::2])
    verdicts = requests.Verdicts(kept, failed, unresolvable)
    got = messages.filter_result(requests.filter_answer(asked, verdicts))
    assert (got.nodes if whole else got.node_names) == kept
    assert (got.node_names if whole else got.nodes) is None
    assert (got.failed, got.unresolvable, got.error) == (failed, unresolvable, "")


@pytest.mark.parametrize("key", ["items", "Items"])
def test_the_client_reads_a_list_of_nodes_whatever_its_case(key: str) -> None:
    """Go does; here a list under `Items` was an empty one, so that the pod fitted nowhere."""
    answer = msgspec.json.encode({"nodes": {key: [{"metadata": {"name": "a"}}]}})
    assert messages.filter_result(answer).nodes == ("a",)


@given(scores=st.lists(st.tuples(TEXTS, st.integers(0, 10))))
def test_the_client_reads_the_scores_that_the_server_writes(scores: list[tuple[str, int]]) -> None:
    assert messages.priorities(requests.priorities_answer(scores)) == scores


def test_the_server_reads_the_binding_that_the_client_writes() -> None:
    asked = requests.read_bind_request(messages.bind_request(make_pod("p", "ns", uid="u"), "n"))
    assert asked == requests.BindRequest("ns", "p", "u", "n")
    assert messages.binding_result(requests.error_answer("no")) == "no"
