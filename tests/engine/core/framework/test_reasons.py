"""Reason tokens: what rejections mean, which cause is dominant, what autoscalers get to see."""

import re

import pytest

from engine.core.framework import reasons
from engine.core.framework.reason_kinds import REASONS
from engine.core.framework.reasons import (
    UNSCHEDULABLE,
    Reason,
    derived_token,
    dominant,
    token_problem,
)
from engine.core.framework.status import Code, Status


def _status(plugin: str, *why: str, token: str = "") -> Status:
    return Status(Code.UNSCHEDULABLE, why, plugin, token)


@pytest.mark.parametrize("token", list(REASONS))
def test_every_entry_says_in_one_line_what_it_means_and_what_to_do(token: str) -> None:
    kind = REASONS[token]
    assert re.fullmatch("[A-Z][A-Za-z0-9]+", token)
    assert len(token) <= reasons.LONGEST_TOKEN
    for text in (kind.meaning, kind.next_step):
        assert text
        assert text == text.strip()
        assert not text.endswith(".")
        assert "\n" not in text


@pytest.mark.parametrize(
    ("plugin", "why", "want"),
    [
        ("NodeResourcesFit", ["Insufficient cpu"], "InsufficientResources"),
        ("NodeResourcesFit", ["Insufficient cpu", "Too many pods"], "InsufficientResources"),
        ("NodeResourcesFit", ["Too many pods"], "TooManyPods"),
        ("TaintToleration", ["node(s) had untolerated taint(s)"], "UntoleratedTaint"),
        ("NodeAffinity", ["pod affinity terms conflict"], "AffinityConflict"),
        ("NodeAffinity", ["node(s) didn't satisfy plugin(s) [NodeAffinity]"], "AffinityMismatch"),
        (
            "InterPodAffinity",
            ["node(s) didn't satisfy existing pods anti-affinity rules"],
            "PodAntiAffinityMismatch",
        ),
        (
            "InterPodAffinity",
            ["node(s) didn't match pod affinity rules"],
            "PodAffinityMismatch",
        ),
        ("VolumeBinding", ['persistentvolumeclaim "a" not found'], "WaitingForClaim"),
        ("VolumeBinding", ["node(s) did not have enough free storage"], "InsufficientStorage"),
        ("VolumeZone", ['storageclass.storage.k8s.io "a" not found'], "ClassMissing"),
        ("VolumeZone", ['persistentvolume "a" not found'], "WaitingForVolume"),
        ("VolumeZone", ["PersistentVolume had no name"], "WaitingForVolume"),
        ("DynamicResources", ["cannot allocate all claims"], "InsufficientDevices"),
        ("DynamicResources", ["request a: device class b does not exist"], "ClassMissing"),
        ("DynamicResources", ['resourceclaim "a" not found'], "WaitingForClaim"),
        ("GangScheduling", ["waiting for minCount pods from a gang to appear"], "GroupIncomplete"),
        ("GangScheduling", ["the PodGroup has a disruptionMode `x`"], "InvalidGroup"),
        ("Extender", [], "ExtenderRejected"),
        ("gpu-quota", ["used up"], "GpuQuota"),
    ],
)
def test_a_rejection_has_the_token_of_its_cause(plugin: str, why: list[str], want: str) -> None:
    assert reasons.token_of(_status(plugin, *why)) == want


def test_every_cause_of_a_plugin_is_in_the_table() -> None:
    for plugin, causes in reasons._OF_PLUGIN.items():
        assert causes[-1][0] == "", f"{plugin} has reasons that mean nothing"
        assert {token for _, token in causes} <= REASONS.keys()


def test_the_token_of_a_policy_counts_more_than_its_name() -> None:
    status = _status("NodeResourcesFit", "Insufficient cpu", token="QuotaReached")
    assert reasons.token_of(status) == "QuotaReached"


@pytest.mark.parametrize(
    ("rejections", "want"),
    [
        pytest.param(
            [
                (_status("NodeResourcesFit", "Insufficient cpu"), 3),
                (_status("NodePorts", "no free ports"), 2),
            ],
            "InsufficientResources",
            id="the cause that decides most nodes",
        ),
        pytest.param(
            [
                (_status("NodeResourcesFit", "Too many pods", "Insufficient nvidia.com/gpu"), 3),
                (_status("NodeResourcesFit", "Insufficient nvidia.com/gpu"), 2),
            ],
            "InsufficientResources",
            id="what would have to be lifted on most nodes, not what comes first in a list",
        ),
        pytest.param(
            [
                (_status("NodeResourcesFit", "Insufficient cpu", "Too many pods"), 2),
                (_status("NodeResourcesFit", "Too many pods"), 3),
                (_status("NodePorts", "no free ports"), 4),
            ],
            "TooManyPods",
            id="a reason counts wherever it is in the list",
        ),
        pytest.param(
            [
                (_status("DynamicResources", "cannot allocate all claims", "device class x"), 1),
                (_status("NodeResourcesFit", "Insufficient cpu"), 9),
            ],
            "ClassMissing",
            id="the gravest of several reasons of one node",
        ),
        pytest.param(
            [
                (_status("NodeResourcesFit", "Insufficient cpu"), 1),
                (_status("NodeAffinity", "didn't match"), 4999),
            ],
            "InsufficientResources",
            id="nodes that the pod would accept before those that it rules out",
        ),
        pytest.param(
            [
                (_status("NodeResourcesFit", "Insufficient cpu"), 3),
                (_status("NodeResourcesFit", "Insufficient memory"), 3),
                (_status("NodePorts", "no free ports"), 4),
            ],
            "InsufficientResources",
            id="nodes of one cause are added up",
        ),
        pytest.param(
            [
                (_status("NodeResourcesFit", "Insufficient cpu"), 9),
                (_status("q", "used up", token="QuotaReached"), 1),
            ],
            "QuotaReached",
            id="what no node changes",
        ),
        pytest.param(
            [
                (_status("a", "x"), 1),
                (_status("b", "x"), 1),
            ],
            "A",
            id="equal causes by name",
        ),
    ],
)
def test_one_cause_is_dominant(rejections: list[tuple[Status, int]], want: str) -> None:
    for given in (rejections, rejections[::-1]):
        found = dominant(given)
        assert found is not None
        assert found.token == want


def test_without_rejections_there_is_no_cause() -> None:
    assert dominant([]) is None


@pytest.mark.parametrize(
    ("status", "is_about_nodes", "want"),
    [
        pytest.param(
            _status("VolumeBinding", 'persistentvolumeclaim "a" not found'),
            True,
            Reason("WaitingForClaim", "VolumeBinding", False, UNSCHEDULABLE),
            id="a plugin's condition is kube-scheduler's, though no node helps",
        ),
        pytest.param(
            _status("quota", "used up", token="QuotaReached"),
            True,
            Reason("QuotaReached", "quota", False, "QuotaReached"),
            id="a quota by its token",
        ),
        pytest.param(
            _status("team_quota", "used up"),
            False,
            Reason("TeamQuota", "team_quota", False, "TeamQuota"),
            id="a policy that looks at no node",
        ),
        pytest.param(
            _status("too_warm", "node(s) were too warm"),
            True,
            Reason("TooWarm", "too_warm", True, UNSCHEDULABLE),
            id="a policy that looks at nodes",
        ),
        pytest.param(
            _status("gpus", "full", token="InsufficientResources"),
            False,
            Reason("InsufficientResources", "gpus", True, UNSCHEDULABLE),
            id="a word of the table means the same everywhere",
        ),
    ],
)
def test_only_what_a_node_may_change_looks_unschedulable(
    status: Status, is_about_nodes: bool, want: Reason
) -> None:
    assert reasons.rejection(status, is_about_nodes=is_about_nodes) == want


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        ("gpu-quota", "GpuQuota"),
        ("gpu_quota", "GpuQuota"),
        ("GpuQuota", "GpuQuota"),
        ("2nd", "Policy2nd"),
        ("größe", "GrE"),
        ("ü", "Policy"),
        ("throttled", "ThrottledPolicy"),
        ("unschedulable", "UnschedulablePolicy"),
        ("quota_reached", "QuotaReachedPolicy"),
        ("a" * 60, "A" + "a" * 39),
    ],
)
def test_a_policy_without_a_token_has_one_made_of_its_name(policy: str, want: str) -> None:
    got = derived_token(policy)
    assert got == want
    assert token_problem(got) == ("", "")


@pytest.mark.parametrize("token", ["GpuQuota", "QuotaReached", "InsufficientResources", "A1"])
def test_a_policy_may_give_its_own_words_and_those_that_mean_the_same(token: str) -> None:
    assert token_problem(token) == ("", "")


@pytest.mark.parametrize(
    "token", ["", "gpuQuota", "Gpu_Quota", "Gpu Quota", "1Gpu", "Größe", "A" * 41, "A\n"]
)
def test_a_token_is_camel_case_and_short(token: str) -> None:
    problem, hint = token_problem(token)
    assert "CamelCase" in problem
    assert hint


def test_what_a_policy_cannot_give_is_not_taken_from_the_sandbox() -> None:
    assert reasons.legal_token("SoldOut") == "SoldOut"
    for given in ("Throttled", "a b", "", 3, None, ["SoldOut"], "A" * 10_000):
        assert reasons.legal_token(given) == ""


@pytest.mark.parametrize(
    "token", ["Unschedulable", "SchedulingGated", "Throttled", "PolicyFailed", "NotYetTried"]
)
def test_a_policy_cannot_say_what_the_scheduler_says(token: str) -> None:
    problem, hint = token_problem(token)
    assert "may give" in problem
    assert f"`{token}`" in hint
