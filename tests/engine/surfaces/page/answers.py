"""Answers as the page is given them, made by hand."""

from typing import Any, Final

import msgspec

from engine.comparing.difference import Difference
from engine.explaining.remedies import Remedy
from engine.rollout.measures import ArmMeasures, ShadowMeasures
from engine.rollout.status import GateResult
from engine.rollout.status import Verdict as StageVerdict
from engine.surfaces.live.activity import ActivityMark, ActivityPage, ActivitySample
from engine.surfaces.live.answers import (
    Candidate,
    ClassOnNode,
    Command,
    FileDiff,
    FoundPod,
    Leader,
    NodeAnswer,
    NodeGroup,
    NodeRow,
    NodeScores,
    NodesPage,
    PlaceCounts,
    PodAnswer,
    PodsPage,
    PoliciesPage,
    PolicyAnswer,
    PreemptionAnswer,
    ProblemAnswer,
    QueueMove,
    QueuePage,
    QueueRow,
    RequestRange,
    ResourceTotal,
    ResourceUse,
    RevisionAnswer,
    RolloutPage,
    RolloutStage,
    Score,
    Stage,
    Victim,
    WhyNot,
)
from engine.surfaces.live.share_answers import (
    GivenBack,
    HeldRow,
    NextRequest,
    PodCounts,
    PodInQueue,
    ReclaimRow,
    ResourceStanding,
    ShareAnswer,
    SharePair,
    ShareRow,
    SharesPage,
)
from engine.surfaces.live.what_if.answers import (
    Counts,
    WhatIfAnswer,
    WouldEnd,
    WouldStart,
    WouldWait,
)

AT: Final = "2026-11-25T19:30:00+00:00"
LEADER: Final = Leader("scheduler-0_5d3c", is_us=True)
REVISION: Final = "3f2a9c41d07b"
GIB: Final = 1024**3


def row(name: str = "shop/checkout-1", **fields: Any) -> QueueRow:
    """A row of the queue."""
    known: dict[str, Any] = {
        "row_id": name,
        "example": name,
        "pods": 1,
        "names": (name,),
        "namespace": name.partition("/")[0],
        "profile": "default-scheduler",
        "owner": "ReplicaSet/checkout",
        "requests": {
            "memory": RequestRange(32 * GIB, 32 * GIB, 32 * GIB),
            "cpu": RequestRange(8000, 8000, 8000),
        },
        "place": "unschedulable",
        "since": "2026-11-25T19:17:20+00:00",
        "waited_seconds": 760.0,
        "attempts": 4,
        "waits_for": ("Node added", "placed pod deleted"),
        "reason": "InsufficientResources",
        "message": "0/5 nodes are available: 5 Insufficient cpu.",
        "node_helps": True,
        "policies": ("NodeResourcesFit",),
    }
    return QueueRow(**(known | fields))


def queue(*rows: QueueRow, **fields: Any) -> QueuePage:
    """A page of the queue."""
    known: dict[str, Any] = {
        "revision": REVISION,
        "at": AT,
        "leader": LEADER,
        "counts": PlaceCounts(unschedulable=sum(one.pods for one in rows)),
        "total_pods": sum(one.pods for one in rows),
        "total_rows": len(rows),
        "next": None,
        "rows": rows,
        "values": {"namespace": tuple({one.namespace: None for one in rows})},
    }
    return QueuePage(**(known | fields))


def found(name: str = "shop/checkout-1", **fields: Any) -> FoundPod:
    """A pod that was looked for."""
    known: dict[str, Any] = {
        "pod": name,
        "place": "bound",
        "node": "node-2",
        "owner": "ReplicaSet/checkout",
        "profile": "default-scheduler",
        "queue": "web",
        "requests": {"memory": 32 * GIB, "cpu": 8000},
        "since": "2026-11-25T19:17:20+00:00",
    }
    return FoundPod(**(known | fields))


def pods(*rows: FoundPod, **fields: Any) -> PodsPage:
    """A page of pods that were looked for."""
    rows = rows or (
        found("shop/checkout-1", place="gated", node="", reason="GatedByPolicy"),
        found("shop/checkout-2"),
    )
    known: dict[str, Any] = {
        "revision": REVISION,
        "at": AT,
        "leader": LEADER,
        "total": len(rows),
        "next": None,
        "rows": rows,
    }
    return PodsPage(**(known | fields))


def pod(**fields: Any) -> PodAnswer:
    """The answer about a pod that no node fits."""
    known: dict[str, Any] = {
        "pod": "shop/checkout-1",
        "owner": "ReplicaSet/checkout",
        "profile": "default-scheduler",
        "revision": REVISION,
        "at": AT,
        "outcome": "unschedulable",
        "reason": "InsufficientResources",
        "headline": "No node has 8 CPU free; the largest free piece is 3.5 CPU.",
        "node_helps": True,
        "next_step": "Add a node with at least 8 CPU to `zone-a`, or ask for at most 3.5.",
        "message": "0/5 nodes are available: 3 Insufficient cpu, 2 kept for batch work.",
        "queue": row(),
        "moves": (
            QueueMove("2026-11-25T19:17:20+00:00", "active", "new pod"),
            QueueMove("2026-11-25T19:29:12+00:00", "unschedulable", "rejected"),
        ),
        "nodes": 5,
        "policies": (
            PolicyAnswer(
                policy="NodeResourcesFit",
                fits=2,
                rejects=3,
                decides=0,
                groups=(
                    NodeGroup(
                        verdict="rejects",
                        count=3,
                        example="node-1",
                        examples=("node-1", "node-2", "node-3"),
                        reason="Insufficient cpu",
                        token="InsufficientResources",
                        source="node_resources_fit.star:41",
                        is_resolvable=True,
                        read={"node.allocatable.cpu": 4000, "pod.requests.cpu": 8000},
                    ),
                    NodeGroup(verdict="fits", count=2, example="node-4"),
                ),
            ),
            PolicyAnswer(
                policy="business_hours",
                fits=3,
                rejects=2,
                decides=2,
                groups=(
                    NodeGroup(
                        verdict="rejects",
                        count=2,
                        example="node-4",
                        reason="node(s) are kept for batch work",
                        token="KeptForBatch",
                        source="business_hours.star:12",
                        read={"node.labels[pool]": "batch"},
                    ),
                ),
            ),
        ),
        "remedies": (Remedy("NodeResourcesFit", "request at most 3500m cpu", 3),),
        "preemption": PreemptionAnswer(
            outcome="would_evict",
            node="node-2",
            victims=(Victim("batch/report-7", 10, "lower priority"),),
            candidates=(Candidate("node-2", 1), Candidate("node-3", 4)),
            candidate_count=2,
            why_not=(WhyNot("evicting pods would not lift the taint", 2),),
        ),
    }
    return PodAnswer(**(known | fields))


def placed_pod() -> PodAnswer:
    """The answer about a pod with a node."""
    scores = {
        "NodeResourcesFit": Score(None, 80, 1, 80),
        "prefer_disk": Score(7, 100, 5, 500),
    }
    return pod(
        outcome="bound",
        source="decided",
        node="node-2",
        reason="",
        headline="It is on node-2, the best of 2 feasible nodes.",
        next_step="",
        message="",
        queue=None,
        policies=(),
        remedies=(),
        preemption=None,
        why=("node-2 has the disk that prefer_disk prefers",),
        feasible=2,
        ranking=(NodeScores("node-2", 1, 580, scores), NodeScores("node-1", 2, 80, scores)),
        ties=("no tie",),
        decided_at=AT,
        decided_by=REVISION,
    )


def policies(**fields: Any) -> PoliciesPage:
    """The policies after an accepted and a rejected edit."""
    text = 'def score(pod, node):\n    return 100 if node.lables.get("disk") == "ssd" else 0\n'
    problem = ProblemAnswer("prefer_disk.star", 2, 24, "a node has no field `lables`", "labels?")
    rejected = RevisionAnswer(
        revision="b81c00aa7e21",
        at="2026-11-25T19:28:00+00:00",
        result="rejected",
        written_by="kubectl-edit",
        stages=(
            Stage(stage="offered", at=AT),
            Stage(stage="rejected", at=AT, note="check"),
        ),
        problems=(problem,),
        compared_with=REVISION,
        diff=(
            FileDiff(
                "prefer_disk.star",
                (
                    "--- prefer_disk.star",
                    "+++ prefer_disk.star",
                    "@@ -1,2 +1,2 @@",
                    " def score(pod, node):",
                    '-    return 100 if node.labels.get("disk") == "ssd" else 0',
                    '+    return 100 if node.lables.get("disk") == "ssd" else 0',
                ),
            ),
        ),
    )
    accepted = RevisionAnswer(
        revision=REVISION,
        at="2026-11-25T18:02:11+00:00",
        result="accepted",
        written_by="argocd-controller",
        stages=(
            Stage(stage="offered", at=AT),
            Stage(stage="checked", at=AT, seconds=0.038),
            Stage(stage="tested", at=AT, seconds=0.21),
            Stage(stage="loaded", at=AT, seconds=0.05),
            Stage(stage="tried", at=AT, seconds=0.4),
            Stage(stage="in_force", at=AT),
        ),
        is_in_force=True,
    )
    known: dict[str, Any] = {
        "leader": LEADER,
        "at": AT,
        "source": {"name": "starsched/starsched-policies", "gone": False},
        "active": {
            "revision": REVISION,
            "profiles": ["default-scheduler"],
            "decisions": 1204,
            "failed_decisions": 0,
            "on_probation": False,
            "warnings": [],
            "sandbox": {"system_calls": True, "landlock": 7, "missing": []},
        },
        "last_rejected": None,
        "last_good": REVISION,
        "rolled_back": (),
        "history": (),
        "revisions": (rejected, accepted),
        "files": {"prefer_disk.star": text},
    }
    return PoliciesPage(**(known | fields))


def rollout(**fields: Any) -> RolloutPage:
    """A candidate in its first canary step, after a shadow with differences."""
    shadow = ShadowMeasures(
        decided=1300,
        compared=1204,
        skipped={"busy": 90, "claims": 6},
        counts={"moved": 41, "newly_pending": 1},
        by_policy={"prefer_disk": 42},
        by_namespace={"shop": 40, "batch": 2},
        by_class={"shop/checkout": 40, "batch/report": 2},
        examples=[
            Difference(
                "newly_pending",
                "batch/report-7",
                "node-2",
                "0/5 nodes are available: 5 no disk.",
                "prefer_disk",
                "filter",
                "prefer_disk.star:12",
                {"NodeResourcesFit": 80, "prefer_disk": 500},
            ),
            Difference(
                "moved",
                "shop/checkout-1",
                "node-2",
                "node-4",
                "prefer_disk",
                "score",
                "prefer_disk.star:14",
                {"NodeResourcesFit": 80, "prefer_disk": 500},
                {"NodeResourcesFit": 60, "prefer_disk": 900},
                {"NodeResourcesFit": 60, "prefer_disk": 100},
                {"NodeResourcesFit": 80, "prefer_disk": 500},
            ),
        ],
    )
    gates = (
        GateResult("duration", 71.0, 120.0, "inconclusive", "71 s of 2 min"),
        GateResult("maxMoved", 0.034, 0.25, "pass", "maxMoved: 3.4% moved, at most 25%"),
        GateResult("maxNewlyPending", 1, 0, "fail", "1 newly pending, at most 0"),
    )
    known: dict[str, Any] = {
        "revision": REVISION,
        "at": AT,
        "leader": LEADER,
        "source": "configmap:starsched/starsched-policies",
        "config_map": "starsched/starsched-policies-rollout",
        "headline": "b81c00aa7e21 decides about 1% of the pods.",
        "next_step": "It goes on by itself when every gate has passed.",
        "commands": (Command("starsched rollout pause", "keeps it in its stage"),),
        "candidate": "b81c00aa7e21",
        "base": REVISION,
        "stages": (
            RolloutStage("shadow", 0.0, "done"),
            RolloutStage("canary", 0.01, "now"),
            RolloutStage("canary", 0.05),
            RolloutStage("in_force"),
        ),
        "since": "2026-11-25T19:28:49+00:00",
        "elapsed": 71.0,
        "result": "running",
        "verdict": StageVerdict("inconclusive", "71 s of 2 min", gates),
        "shadow": shadow,
        "canary": ArmMeasures(
            decisions=60, pending=1, seconds=0.3, bound=55, bind_seconds=22.0, owners=12
        ),
        "control": ArmMeasures(decisions=61, seconds=0.2, bound=60, bind_seconds=18.0, owners=11),
    }
    return RolloutPage(**(known | fields))


def node(index: int, share: float, **fields: Any) -> NodeRow:
    """A node whose fullest resource is cpu."""
    cpu = ResourceUse(4000, round(4000 * share), share)
    memory = ResourceUse(16 * GIB, round(16 * GIB * share / 2), share / 2)
    known: dict[str, Any] = {
        "name": f"node-{index:04}",
        "zone": f"zone-{'abc'[index % 3]}",
        "pods": round(20 * share),
        "resources": {"cpu": cpu, "memory": memory, "pods": ResourceUse(110, 12, 0.11)},
        "fullest": "cpu",
        "fullest_share": share,
    }
    return NodeRow(**(known | fields))


def nodes(count: int = 60) -> NodesPage:
    """A page of nodes, every seventh of them full, two that take no pods."""
    rows = [node(i, 1.0 if i % 7 == 0 else i * 37 % 100 / 100) for i in range(count)]
    rows[1:3] = [
        node(1, 0.3, is_ready=False),
        node(2, 0.8, is_unschedulable=True, taints=("maintenance=yes:NoSchedule",)),
    ]
    return NodesPage(
        revision=REVISION,
        at=AT,
        leader=LEADER,
        total=count,
        next=None,
        totals={
            "memory": ResourceTotal(16 * GIB * count, 4 * GIB * count, 12 * GIB * count, 16 * GIB),
            "cpu": ResourceTotal(4000 * count, 2500 * count, 1500 * count, 3900),
            "pods": ResourceTotal(110 * count, 12 * count, 98 * count, 108),
        },
        rows=tuple(rows),
    )


def one_node() -> NodeAnswer:
    """The answer about a node that could take one of two classes."""
    return NodeAnswer(
        revision=REVISION,
        at=AT,
        leader=LEADER,
        node=node(7, 0.8, taints=("gpu=true:NoSchedule",), nominated=("shop/next",)),
        pods=(found("shop/api-3"), found("shop/api-4", place="placed")),
        total_pods=2,
        classes=(
            ClassOnNode(
                row=row("batch/render-1", pods=9812),
                verdict="rejects",
                rejections={"TaintToleration": ("node(s) had untolerated taint(s)",)},
            ),
            ClassOnNode(
                row=row("web/api-1", place="gated", reason="GatedByPolicy"), verdict="fits"
            ),
            ClassOnNode(row=row("web/api-2")),
        ),
        classes_left_out=3,
    )


def standing(allocated: int, waiting: int = 0, share: int | None = None) -> ResourceStanding:
    """One resource of a queue."""
    return ResourceStanding(
        allocated=allocated,
        waiting=waiting,
        requested=allocated + waiting,
        share=share,
        borrowed=max(0, allocated - share) if share is not None else 0,
        lacks=max(0, min(share - allocated, waiting)) if share is not None else 0,
    )


def share(path: str, cpu: ResourceStanding, **fields: Any) -> ShareRow:
    """A queue that has cpu, four times as much memory, and pods of one core."""
    memory = standing(
        cpu.allocated * GIB // 250,
        cpu.waiting * GIB // 250,
        None if cpu.share is None else cpu.share * GIB // 250,
    )
    if not path:
        memory = msgspec.structs.replace(memory, lacks=0)  # it has no others to borrow from
    known: dict[str, Any] = {
        "path": path,
        "level": len(path.split("/")) if path else 0,
        "source": "tree.yaml:7",
        "attributes": {"weight": 3, "limit": {"cpu": 64_000}},
        "pods": PodCounts(waiting=cpu.waiting // 1000, allocated=cpu.allocated // 1000),
        "resources": {"cpu": cpu, "memory": memory, "pods": standing(cpu.requested // 1000)},
        "dominant_share": cpu.allocated * 1000 // 96_000,
        "dominant_resource": "cpu",
        "is_starved": cpu.lacks > 0,
        "is_borrowing": cpu.borrowed > 0,
        "starved_seconds": 1900.0 if cpu.lacks else 0.0,
        "borrowed_seconds": 2400.0 if cpu.borrowed else 0.0,
    }
    return ShareRow(**(known | fields))


HELD: Final = (
    HeldRow(
        queue="web",
        token="QuotaReached",
        reason="queue is at its limit",
        at="web",
        resource="cpu",
        short=4000,
        requests=7,
        pods=7,
    ),
    HeldRow(
        queue="sound",
        is_there=False,
        token="QueueMissing",
        reason="there is no queue of this name",
        requests=2,
        pods=12,
    ),
)
RECLAIMS: Final = (
    ReclaimRow(
        at="2026-11-25T19:17:32+00:00",
        queue="research/vision",
        taker="research/train-7",
        victims=(
            GivenBack(queue="web", stage=0, count=2, pods=("shop/batch-1", "shop/batch-4")),
            GivenBack(queue="web", stage=1, count=1),
        ),
    ),
    ReclaimRow(
        at="2026-11-25T19:02:11+00:00",
        queue="web",
        is_reversal=True,
        victims=(GivenBack(queue="research/vision", stage=0, count=1),),
    ),
)


def shares(*rows: ShareRow, **fields: Any) -> SharesPage:
    """A tree in which research/vision lacks what web borrows; or *rows*."""
    root = ResourceStanding(allocated=90_000, waiting=46_000, requested=136_000, share=96_000)
    made = rows or (
        share("", root, source="", attributes={}, is_leaf=False),
        share("research", standing(34_000, 38_000, 60_000), is_leaf=False),
        share("research/speech", standing(20_000, 0, 20_000)),
        share("research/vision", standing(14_000, 38_000, 40_000)),
        share("web", standing(56_000, 8_000, 36_000), held=7),
    )
    pair = SharePair(
        resource="cpu",
        starved="research",
        borrowing="web",
        amount=20_000,
        lacks=26_000,
        borrowed=20_000,
    )
    known: dict[str, Any] = {
        "revision": REVISION,
        "at": AT,
        "leader": LEADER,
        "policy": "by_weight",
        "headline": "Of 4 queues, 2 starve and 1 borrows.",
        "problems": ("Queue sound: queue `sound` is under `audio`, which is not there",),
        "queues": len(made) - 1,
        "starved": 2,
        "borrowing": 1,
        "outside": 12,
        "resources": ("cpu", "memory", "pods"),
        "pairs": (pair,),
        "held": HELD,
        "reclaims": RECLAIMS,
        "total": len(made),
        "rows": made,
    }
    return SharesPage(**(known | fields))


def one_share(**fields: Any) -> ShareAnswer:
    """The answer about the queue that borrows."""
    known: dict[str, Any] = {
        "revision": REVISION,
        "at": AT,
        "leader": LEADER,
        "policy": "by_weight",
        "queue": share("web", standing(56_000, 8_000, 36_000)),
        "pairs": shares().pairs,
        "next_request": NextRequest(queue="web", pod="shop/checkout-1", is_held=True),
        "held": HELD[:1],
        "reclaims": RECLAIMS,
        "pods": (
            PodInQueue(
                pod="shop/checkout-1",
                phase="waiting",
                requests={"cpu": 8000, "memory": 32 * GIB},
                since="2026-11-25T19:17:20+00:00",
            ),
            PodInQueue(
                pod="shop/api-3",
                phase="allocated",
                node="node-2",
                requests={"cpu": 2000},
                is_preemptible=False,
                since="2026-11-25T10:02:00+00:00",
            ),
        ),
        "total_pods": 2,
        "hidden_pods": 3,
    }
    return ShareAnswer(**(known | fields))


def what_if(said: str = "shop/checkout-1") -> WhatIfAnswer:
    """What a new node would do, with *said* wherever names and texts can be."""
    return WhatIfAnswer(
        revision=REVISION,
        at=AT,
        leader=LEADER,
        changes=(f"add 1 node like {said}",),
        added=(said,),
        counts=Counts(start=1, wait=1, moved=1, lost=1),
        start=(WouldStart(pod=said, node=said, is_new_node=True),),
        wait=(WouldWait(pod=said, token=said, message=said, origin="drained", was_on=said),),
        end=(WouldEnd(pod=said, node=said, by=said, comes_back=False),),
        hidden_pods=2,
        notes=(said,),
        machine_types=(said,),
    )


def activity(count: int = 120) -> ActivityPage:
    """Samples with a wave in them."""
    samples = tuple(
        ActivitySample(
            at=f"2026-11-25T{18 + i // 360}:{i // 6 % 60:02}:{i % 6 * 10:02}+00:00",
            seconds=10.0,
            decisions=100 + (i * 7) % 60,
            bound=90 + (i * 7) % 50,
            p50_seconds=0.002 + (i % 9) / 5000,
            p99_seconds=0.009 + (i % 13) / 1000,
            rejections={"InsufficientResources": i % 11, "UntoleratedTaint": i % 4},
            waiting={"unschedulable": 40 + i // 3, "backoff": i % 7},
        )
        for i in range(count)
    )
    return ActivityPage(
        revision=REVISION,
        at=AT,
        leader=LEADER,
        interval_seconds=10.0,
        samples=samples,
        marks=(
            ActivityMark("2026-11-25T18:02:11+00:00", "policies", REVISION),
            ActivityMark("2026-11-25T18:07:30+00:00", "leader", LEADER.identity),
        ),
    )
