"""For whose pods the built-in policies decide when nothing else can."""

import pytest

from engine.io.leader_election import LeaseSettings
from engine.policy.bundle import build_bundle
from engine.rollout.last_resort import last_resort
from engine.surfaces.cli.run_command import last_resort_name

_HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
_OURS = _HEAD + "profiles: [{schedulerName: ours}, {schedulerName: more}]\n"


@pytest.mark.parametrize(
    ("offered", "want"),
    [
        pytest.param(None, ["other"], id="nothing is there"),
        pytest.param({}, ["other"], id="no files"),
        pytest.param({"a.star": "def ("}, ["other"], id="no configuration"),
        pytest.param({"a.star": "def (", "p.yaml": _OURS}, ["ours", "more"], id="named"),
        pytest.param({"p.yaml": _OURS + "unknown: 1\n"}, ["ours", "more"], id="a bad field"),
        pytest.param({"p.yaml": _OURS + "a: {"}, ["other"], id="no YAML"),
        pytest.param({"p.yaml": _HEAD + "profiles: 3"}, ["other"], id="no profiles"),
        pytest.param({"p_test.yaml": _OURS}, ["other"], id="what tests read"),
        pytest.param({"p.yaml": _HEAD + "profiles: [{}]"}, ["default-scheduler"], id="default"),
    ],
)
def test_names_are_those_that_are_offered(offered: dict[str, str] | None, want: list[str]) -> None:
    bundle = build_bundle(last_resort(offered, "other"))
    assert [profile.scheduler_name for profile in bundle.profiles] == want
    assert all(policy.is_builtin for policy in bundle.policies.values())


@pytest.mark.parametrize(
    ("lease", "want"),
    [
        pytest.param(None, "default-scheduler", id="without a lease"),
        pytest.param(LeaseSettings(name="kube-scheduler"), "default-scheduler", id="in its place"),
        pytest.param(LeaseSettings(), "starsched", id="next to it"),
        pytest.param(
            LeaseSettings(name="kube-scheduler", namespace="team"), "kube-scheduler", id="elsewhere"
        ),
    ],
)
def test_pods_of_kube_scheduler_are_taken_only_in_its_place(
    lease: LeaseSettings | None, want: str
) -> None:
    assert last_resort_name(lease) == want
