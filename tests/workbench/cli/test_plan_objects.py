"""A plan of objects of queues: what would become of queues and pods if they were applied."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from engine.files.cluster_file import Cluster, read_objects
from engine.files.given_objects import GivenError
from engine.files.policy_files import PolicyFiles
from engine.io.informers import queue_sources
from engine.policy.bundle import build_bundle
from tests.engine.core.kernel.queue_world import FAIR, tree_files
from tests.engine.core.kernel.test_turn_queue import DRF
from workbench.cli.compared_texts import Side, compare_texts
from workbench.comparing.kinds import NEWLY_UNGATED
from workbench.plan.edited_objects import EditedObjects, edited_objects
from workbench.plan.plan import Comparison

_VERSION: Final = "scheduling.volcano.sh/v1beta1"
#: By weight, and no queue has more than its share.
_POLICY: Final = FAIR.replace('"entry", "plus"', '"dominant", "entry", "over", "plus"') + DRF[
    DRF.index("def admit") :
].replace("q.limit", "q.share").replace("for q in path:", "for q in path[:1]:")
_FILES: Final = tree_files(_POLICY, objects=[{"apiVersion": _VERSION, "kind": "Queue"}])


def _queue(name: str, weight: int, **metadata: str) -> dict[str, Any]:
    return {
        "apiVersion": _VERSION,
        "kind": "Queue",
        "metadata": {"name": name, **metadata},
        "spec": {"has": {"weight": weight}},
    }


def _pod(name: str, queue: str, node: str = "") -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [container], **({"nodeName": node} if node else {})}
    metadata = {"name": name, "namespace": "a", "uid": name, "labels": {"queue": queue}}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def _cluster() -> Cluster:
    """Four cpu, of which `a` has its half, with more pods of both waiting."""
    room = {"cpu": "4", "memory": "8Gi", "pods": "20"}
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}}
    pods = [_pod(f"a{n}", "a", "n" if n < 2 else "") for n in range(4)]
    pods += [_pod(f"b{n}", "b") for n in range(2)]
    cluster = Cluster(nodes=[node], pods=pods)
    for one in (_queue("a", 1, uid="u"), _queue("b", 1)):
        cluster.add(one)
    return cluster


def _edited(cluster: Cluster, file: Path, *objects: dict[str, Any]) -> EditedObjects:
    file.write_text(yaml.safe_dump_all(objects))
    read = queue_sources(build_bundle(_FILES))
    return edited_objects(cluster.others, read_objects(file), read, "team")


def _plan(cluster: Cluster, objects: EditedObjects, files: dict[str, str] = _FILES) -> Comparison:
    before, after = (
        Side(build_bundle(texts), PolicyFiles(Path("p"), texts, frozenset(texts)))
        for texts in (_FILES, files)
    )
    return compare_texts(cluster, before, after, None, objects=objects)


def test_an_object_with_another_weight_gives_other_shares_and_lets_pods_start(
    tmp_path: Path,
) -> None:
    cluster, file = _cluster(), tmp_path / "queues.yaml"
    found = _plan(cluster, _edited(cluster, file, _queue("b", 1), _queue("a", 3)))
    assert found.queues is not None
    a, b = found.queues.changes
    assert (a.queue, a.share_before, a.share_after) == ("a", {"cpu": 2000}, {"cpu": 3000})
    assert (b.queue, b.share_before, b.share_after) == ("b", {"cpu": 2000}, {"cpu": 1000})
    assert found.queues.causes == ("Queue a",)
    assert found.queues.place == f"{file}:9", "where the second document begins"
    ungated = [one for one in found.differences if one.kind == NEWLY_UNGATED]
    assert [one.pod for one in ungated] == ["a/a2", "a/a3"]
    assert {one.causes for one in ungated} == {("Queue a",)}
    assert {one.place for one in ungated} == {f"{file}:9"}


def test_a_queue_that_does_not_exist_yet_is_new(tmp_path: Path) -> None:
    cluster = _cluster()
    found = _plan(cluster, _edited(cluster, tmp_path / "q.yaml", _queue("c", 2)))
    assert found.queues is not None
    assert (found.queues.appeared, found.queues.vanished) == (1, 0)
    assert [one.queue for one in found.queues.changes] == ["c"], "without pods it takes nothing"


def test_of_a_text_and_an_object_that_are_edited_the_one_is_named_that_does_it(
    tmp_path: Path,
) -> None:
    cluster = _cluster()
    objects = _edited(cluster, tmp_path / "q.yaml", _queue("a", 3))
    other = {**_FILES, "fair.star": _FILES["fair.star"].replace("is at its limit", "is full")}
    found = _plan(cluster, objects, other)
    assert found.queues is not None
    assert found.queues.causes == ("Queue a",)


def test_without_edited_objects_all_is_the_same(tmp_path: Path) -> None:
    cluster = _cluster()
    found = _plan(cluster, _edited(cluster, tmp_path / "q.yaml", _queue("a", 1)))
    assert found.queues is not None
    assert (found.queues.changes, found.differences) == ((), ())


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            {**_queue("a", 1), "kind": "Cohort"},
            f"want an object that the tree of queues reads (`Queue` of `{_VERSION}`), got `Cohort`",
        ),
        ({**_queue("a", 1), "metadata": {}}, "metadata.name: required value"),
    ],
)
def test_an_object_that_no_tree_reads_is_refused_with_its_place(
    given: dict[str, Any], wanted: str, tmp_path: Path
) -> None:
    file = tmp_path / "q.yaml"
    with pytest.raises(GivenError) as caught:
        _edited(_cluster(), file, given)
    assert str(caught.value).startswith(f"{file}:1: document 1, {given['kind']}")
    assert wanted in str(caught.value)


def test_an_object_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GivenError, match=r"q.yaml:9: .*is given before, at .*q.yaml:1$"):
        _edited(_cluster(), tmp_path / "q.yaml", _queue("a", 1), _queue("a", 2))


def test_an_object_without_a_namespace_is_that_of_the_context(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.add({**_queue("a", 1, namespace="team"), "status": {"state": "Open"}})
    objects = _edited(cluster, tmp_path / "q.yaml", _queue("a", 3))
    (only,) = objects.among(objects.after)
    assert only["metadata"] == {"name": "a", "namespace": "team"}
    assert (only["spec"], only["status"]) == ({"has": {"weight": 3}}, {"state": "Open"})
    assert objects.among(objects.before)[0]["spec"] == {"has": {"weight": 1}}
