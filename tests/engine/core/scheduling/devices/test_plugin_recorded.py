"""DynamicResources beside kube-scheduler's: reasons, codes, scores and what post-filter says.

Recorded from Kubernetes v1.37.2 by the oracle of `tests/oracle`, on the scenarios of
`pod_scenarios.py` (seeds 0 to 119), with no other plugin.
"""

import json
import re
from pathlib import Path
from typing import Any

from engine.core.framework.behaviors import behaviors_of
from engine.core.framework.status import Code, Status
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.files.world import World, pod_of

POOL = re.compile(r"asks for all devices, but resource pool \S+ is currently")
DATA = Path(__file__).resolve().parents[4] / "data" / "devices" / "pods.jsonl"
Json = dict[str, Any]


def ours(scenario: Json) -> Json:
    """What our plugin says of the one pod of a scenario, in the shape of `theirs`."""
    world = World.from_manifests(scenario["nodes"], (), scenario["objects"])
    world.cache.objects.behaves = behaviors_of(37)  # whose answers these are
    pod = pod_of(scenario["incoming"][0])
    plugin = DynamicResources(world.cache.objects)
    state = plugin.pre_filter(pod, world.snapshot, {})

    def post_filter(known: Any) -> str:
        said = plugin.post_filter(known, pod, {}, world.snapshot)
        return "" if said is None else said.message

    if isinstance(state, Status):
        if state.code is Code.ERROR:
            return {"error": state.message}
        reasons = [state.code.value, *state.reasons]
        return {"preFilter": reasons, "postFilter": post_filter(None)}
    answer: Json = {"rejected": {}, "scores": {}}
    feasible = []
    # As a decision does: what is known of nodes that are left out is not asked.
    only = plugin.only_nodes(state) if state is not None else None
    for node in scenario["nodes"]:
        info = world.snapshot.info(node["metadata"]["name"])
        assert info is not None
        if only is not None and info.name not in only[0]:
            status: Status | None = only[1]
            plugin.leave_out(state, iter([info.name]))
        else:
            status = plugin.filter(state, info) if state is not None else None
        if status is None:
            feasible.append(info)
        elif status.code is Code.ERROR:
            return {"error": status.message}
        else:
            answer["rejected"][info.name] = [status.code.value, *status.reasons]
    if not feasible:
        return {**answer, "postFilter": post_filter(state)}
    raw = plugin.score(state, feasible) if state is not None else [0] * len(feasible)
    assert raw is not None
    scores = plugin.normalize(raw)
    answer["scores"] = {i.name: s for i, s in zip(feasible, scores, strict=True)}
    return answer


def theirs(answer: Json) -> Json:
    """What the oracle answered, without what is not the plugin's."""
    if "error" in answer:
        text = answer["error"]
        for prefix in ("filter plugin: ", 'PreFilter plugin "DynamicResources": '):
            text = text.rpartition(prefix)[2] if text.startswith("running") else text
        return {"error": text}
    if "preFilter" in answer:
        rejection = answer["preFilter"]
        reasons = [rejection["code"], *rejection["reasons"]]
        return {"preFilter": reasons, "postFilter": answer.get("postFilter", "")}
    made: Json = {
        "rejected": {n: [r["code"], *r["reasons"]] for n, r in answer["rejected"].items()},
        "scores": {n: s["DynamicResources"] for n, s in (answer.get("scores") or {}).items()},
    }
    if not made["scores"]:
        made["postFilter"] = answer.get("postFilter", "")
    return made


def _is_of_one_node(want: Json, got: Json) -> bool:
    """True where kube-scheduler's attempt fails over a pool that is not usable, and ours does not.

    Then its nodes are rejected, or what fails is something else, of another node.
    """
    is_failed = POOL.search(want.get("error", "")) is not None
    reasons = {text for said in got.get("rejected", {}).values() for text in said[1:]}
    is_other = "error" in got and POOL.search(got["error"]) is None
    return is_failed and (is_other or any("of a resource pool" in text for text in reasons))


def test_pods_with_claims_get_the_reasons_of_kube_scheduler() -> None:
    lines = [json.loads(line) for line in DATA.read_text().splitlines()]
    different = []
    said: set[str] = set()
    on_purpose = 0
    for number, line in enumerate(lines):
        want, got = theirs(line["answer"]), ours(line["scenario"])
        if _is_of_one_node(want, got):
            on_purpose += 1
        elif want != got:
            different.append((number, want, got))
        said.update(text for reasons in got.get("rejected", {}).values() for text in reasons[1:])
        said.update(got.get("preFilter", ())[1:])
        said.add(got.get("postFilter", ""))
    assert different == []
    assert on_purpose == 6
    assert {
        "cannot allocate all claims",
        "resourceclaim not available on the node",
        'resourceclaim "c0" is being deleted',
        'pod "default/p": ResourceClaim not created yet',
        "deallocation of ResourceClaim completed",
    } <= said
