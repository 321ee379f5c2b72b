"""The story of an edit: pods are placed by a policy, the policy is edited live, the next pods are
placed by the new text, and a bad edit changes nothing and says why.
"""

from typing import Any, Final

from devkit.cluster import example_cluster, make_pod
from devkit.demo.stage import CONFIG_MAP, NAMESPACE, Scenario, Stage, StoryFailed

PODS: Final = 9

_POLICY: Final = '''\
"""Prefers nodes with one kind of disk.

Hooks: score. Reads: node.labels["example.com/disk"].
"""

_WANTED = "ssd"

def score(pod, node):
    return 100 if node.labels.get("example.com/disk") == _WANTED else 0
'''

_TEST: Final = '''\
"""Tests for prefer_disk.star."""

load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")

def test_one_disk_is_preferred():
    a = make_node("a", labels = {"example.com/disk": "ssd"})
    b = make_node("b", labels = {"example.com/disk": "hdd"})
    asserts.scores(cluster(a, b), make_pod(), {"a": 100, "b": 0})
'''

_PROFILE: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      score:
        enabled:
          - name: prefer_disk
            weight: 5
"""

BEFORE: Final = {
    "prefer_disk.star": _POLICY,
    "prefer_disk_test.star": _TEST,
    "profile.yaml": _PROFILE,
}
AFTER: Final = BEFORE | {
    "prefer_disk.star": _POLICY.replace('_WANTED = "ssd"', '_WANTED = "hdd"'),
    "prefer_disk_test.star": _TEST.replace('{"a": 100, "b": 0}', '{"a": 0, "b": 100}'),
}
#: What no node of the cluster has.
_TAPE: Final = {"example.com/disk": "tape"}
BROKEN: Final = AFTER | {
    "prefer_disk.star": AFTER["prefer_disk.star"].replace("node.labels", "node.lables"),
}


async def run(stage: Stage) -> dict[str, Any]:
    """Place pods, edit the policy, place pods by it, and make a bad edit."""
    # 1. The policies as they are at first.
    stage.say(f"Its policies are the ConfigMap {NAMESPACE}/{CONFIG_MAP}; one of them:")
    stage.show_text("prefer_disk.star", BEFORE["prefer_disk.star"], "python")
    # 2. Pods, placed by them.
    first = stage.revision
    before = await stage.place(_pods("before"))
    # 3. An edit, live.
    stage.say('\nNow the ConfigMap is edited: `_WANTED = "ssd"` becomes `"hdd"`.')
    second = await stage.edit_and_wait(AFTER)
    after = await stage.place(_pods("after"))
    nodes = stage.cluster.list("nodes")
    _show(stage, nodes, before, after)
    _check(nodes, before, after)
    # 4. A bad edit.
    stage.say("\nNow a bad edit: `node.labels` becomes `node.lables`.")
    stage.edit(BROKEN)
    rejection = await stage.until(lambda: stage.message("PolicyRejected"), "the rejection")
    stage.say("What is in force stays, and the ConfigMap has an event:")
    stage.show_text("Warning  PolicyRejected", rejection)
    if stage.revision != second:
        raise StoryFailed(f"want revision {second} in force after a bad edit")
    still = await stage.place(_pods("still"))
    stage.say(f"{len(still)} more pods were placed meanwhile, by {second}.")
    return {
        "placements": {"before": before, "after": after, "still": still},
        "revisions": {"before": first, "after": second},
        "rejection": rejection,
    }


def _pods(prefix: str) -> list[dict[str, Any]]:
    return [make_pod(f"{prefix}-{i + 1}", cpu="500m", memory="512Mi") for i in range(PODS)]


def _show(
    stage: Stage, nodes: list[dict[str, Any]], before: dict[str, str], after: dict[str, str]
) -> None:
    rows = []
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"]["labels"]
        columns = [
            " ".join(pod for pod, place in placements.items() if place == name)
            for placements in (before, after)
        ]
        rows.append((name, labels.get("topology.kubernetes.io/zone", ""), _disk(node), *columns))
    stage.show("Placements", ("node", "zone", "disk", "before the edit", "after the edit"), rows)


def _check(nodes: list[dict[str, Any]], before: dict[str, str], after: dict[str, str]) -> None:
    """The edit must have had its effect; a demo that shows nothing is a failure."""
    disks = {node["metadata"]["name"]: _disk(node) for node in nodes}
    for want, placements in (("ssd", before), ("hdd", after)):
        wrong = sorted(pod for pod, node in placements.items() if disks[node] != want)
        if wrong:
            raise StoryFailed(f"want pods on nodes with {want}, got {', '.join(wrong)} elsewhere")


def _disk(node: dict[str, Any]) -> str:
    return str(node["metadata"]["labels"].get("example.com/disk", ""))


def _leave(stage: Stage) -> None:
    """Let something wait: a group that is one short, and pods that no node fits."""
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
    }
    member: dict[str, Any] = {"schedulingGroup": {"podGroupName": "train"}}
    stage.cluster.create(
        group,
        *(make_pod(f"train-{i + 1}", cpu="1", **member) for i in range(3)),
        make_pod("too-large", cpu="64"),
        *(make_pod(f"no-such-disk-{i + 1}", nodeSelector=_TAPE) for i in range(3)),
    )


SCENARIO: Final = Scenario(
    name="edit",
    summary="a policy is edited live; a bad edit changes nothing and says why",
    policies=BEFORE,
    objects=example_cluster,
    run=run,
    page="",
    shows="what waits, and why",
    leave=_leave,
)
