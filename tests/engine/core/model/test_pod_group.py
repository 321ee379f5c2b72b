"""What a PodGroup says, in the spelling of each version of its API, and what cannot be followed."""

from typing import Any

import msgspec
import pytest

from engine.core.framework.behaviors import behaviors_of
from engine.core.model.objects import decode
from engine.core.model.pod import Pod
from engine.core.model.pod_group import GroupTerms, PodGroup, group_state

META = {"name": "g", "namespace": "team"}
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}

BEHAVES = behaviors_of(37)


def group_of(spec: dict[str, Any]) -> PodGroup:
    return decode(PodGroup, msgspec.json.encode({"metadata": META, "spec": spec}))


def pod(name: str, priority: int = 0) -> Pod:
    meta = {"name": name, "namespace": "team", "creationTimestamp": "2026-01-01T00:00:10Z"}
    return Pod.from_raw(msgspec.json.encode({"metadata": meta, "spec": {"priority": priority}}))


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(
            {
                "workloadRef": {"workloadName": "training", "templateName": "workers"},
                "disruptionMode": {"all": {}},
            },
            id="v1beta1 and v1alpha3",
        ),
        pytest.param(
            {
                "podGroupTemplateRef": {
                    "workload": {"workloadName": "training", "podGroupTemplateName": "workers"}
                },
                "disruptionMode": "PodGroup",
            },
            id="v1alpha2",
        ),
    ],
)
def test_all_versions_say_the_same(version: dict[str, Any]) -> None:
    group = group_of({**GANG, "priority": 7, "preemptionPolicy": "Never", **version})
    got = (
        group.min_count,
        group.disruption_mode,
        group.priority,
        group.preemption_policy,
        group.workload,
        group.problem,
    )
    assert got == (3, "all", 7, "Never", "training", "")


def test_defaults_are_those_of_the_api() -> None:
    group = group_of({"schedulingPolicy": {"basic": {}}, "priority": None, "disruptionMode": None})
    got = (group.min_count, group.disruption_mode, group.priority, group.preemption_policy)
    assert got == (0, "single", None, "")
    assert (group.workload, group.problem) == ("", "")


@pytest.mark.parametrize("mode", ["Pod", {"single": {}}, {"single": {}, "all": None}, "", None])
def test_one_by_one_is_written_in_several_ways(mode: Any) -> None:
    group = group_of({**GANG, "disruptionMode": mode})
    assert (group.disruption_mode, group.problem) == ("single", "")


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {}, "spec.schedulingPolicy: want one of `basic`, `gang`, got nothing", id="no policy"
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": 2}, "basic": {}}},
            "spec.schedulingPolicy: want one of `basic`, `gang`, got `gang` and `basic`",
            id="both policies",
        ),
        pytest.param(
            {"schedulingPolicy": {"elastic": {}}},
            "spec.schedulingPolicy: want one of `basic`, `gang`, got `elastic`",
            id="a policy of a later version",
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": 3}},
            "spec.schedulingPolicy.gang: want an object, got `3`",
            id="a policy that is no object",
        ),
        *(
            pytest.param(
                {"schedulingPolicy": {"gang": gang}},
                f"spec.schedulingPolicy.gang.minCount: want an int of at least 1, got {got}",
                id=f"minCount {got}",
            )
            for gang, got in (
                ({"minCount": 0}, "`0`"),
                ({"minCount": -2}, "`-2`"),
                ({"minCount": "3"}, "`3`"),
                ({"minCount": True}, "`True`"),
                ({}, "nothing"),
            )
        ),
        pytest.param(
            {**GANG, "disruptionMode": {"all": {}, "single": {}}},
            "spec.disruptionMode: want one of `single`, `all`, got `all` and `single`",
            id="both modes",
        ),
        pytest.param(
            {**GANG, "disruptionMode": {"never": {}}},
            "spec.disruptionMode: want one of `single`, `all`, got `never`",
            id="a mode of a later version",
        ),
        pytest.param(
            {**GANG, "disruptionMode": "Replica"},
            "spec.disruptionMode: want one of `Pod`, `PodGroup`, got `Replica`",
            id="a mode that v1alpha2 does not have",
        ),
        pytest.param(
            {**GANG, "disruptionMode": {}},
            "spec.disruptionMode: want one of `single`, `all`, got nothing",
            id="no mode in it",
        ),
        pytest.param(
            {**GANG, "priority": "high"},
            "spec.priority: want an int, got `high`",
            id="a priority that is no number",
        ),
        pytest.param(
            {**GANG, "preemptionPolicy": "Sometimes"},
            "spec.preemptionPolicy: want one of `PreemptLowerPriority`, `Never`, got `Sometimes`",
            id="a preemption policy of a later version",
        ),
    ],
)
def test_what_cannot_be_followed_is_named(spec: dict[str, Any], want: str) -> None:
    group = group_of(spec)
    assert group.problem == f"PodGroup `team/g`: {want}"
    assert group.disruption_mode == "single"
    assert group.priority is None


# --- what policies say of groups -----------------------------------------------------------------


def test_a_pod_group_says_what_policies_leave_to_it() -> None:
    group = group_of({**GANG, "priority": 5, "disruptionMode": {"all": {}}, "workloadRef": None})
    state = group_state(
        "team", "g", [GroupTerms(), GroupTerms(priority=9)], [pod("a"), pod("b")], group, BEHAVES
    )
    assert (state.min_count, state.priority, state.disruption_mode) == (3, 9, "all")


def test_a_pod_group_without_a_priority_is_as_important_as_its_pods() -> None:
    """That of 1.36 has none by default, whatever its pods have."""
    state = group_state(
        "team",
        "g",
        [GroupTerms(), GroupTerms()],
        [pod("a", 3), pod("b", 5)],
        group_of(GANG),
        BEHAVES,
    )
    assert state.priority == 5


def test_a_group_by_label_does_not_look_at_the_pod_group_of_its_name() -> None:
    group = group_of({"priority": 5})
    terms = [GroupTerms(2), GroupTerms(4, disruption_mode="all", preemption_policy="Never")]
    state = group_state("team", "g", terms, [pod("a", 1), pod("b", 3)], group, BEHAVES)
    assert (state.min_count, state.priority, state.problem) == (4, 3, "")
    assert (state.disruption_mode, state.preemption_policy) == ("all", "Never")


def test_a_group_without_its_pod_group_does_not_exist() -> None:
    state = group_state(
        "team", "g", [GroupTerms(3), GroupTerms()], [pod("a"), pod("b")], None, BEHAVES
    )
    assert (state.exists, state.min_count) == (False, 3)
