"""Preflight: every right, version, object and file that a scheduler needs, before it runs."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from devkit.cluster import DevCluster
from engine.io.kube import resources
from engine.io.kube.client import ApiClient, Endpoint
from engine.policy.bundle import build_bundle
from engine.surfaces.preflight.certificates import certificate, trusted
from engine.surfaces.preflight.checks import ClusterChecks
from engine.surfaces.preflight.findings import Finding, State, as_text, exit_code
from engine.surfaces.preflight.rights import (
    Objects,
    Right,
    granting,
    needed_rights,
    rights_of_policies,
)
from tests.certificates import Authority
from tests.controlplane import ControlPlane
from tests.deploy.rendering import DEPLOY
from tests.waiting import wait_until
from tests.workloads import SPOT_SHARE
from workbench.cli.main import main

OBJECTS: Final = Objects(
    lease=("starsched", "starsched"),
    policies=("starsched", "starsched-policies"),
    reviews_callers=True,
)


def _granted(file: str, namespace: str) -> set[tuple[str, ...]]:
    """Namespace, group, resource, name and verb of every rule in a file of `deploy/base`."""
    documents = yaml.safe_load_all((DEPLOY / "base" / file).read_text(encoding="utf-8"))
    roles = [one for one in documents if one["kind"] in ("Role", "ClusterRole")]
    return {
        (namespace, group, resource, name, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def _as_rule(right: Right) -> tuple[str, ...]:
    return right.namespace, right.resource.group, right.plural, right.name, right.verb


def test_the_rights_are_those_of_the_manifests() -> None:
    """Both ways: what preflight does not know is not checked."""
    reading = build_bundle({"share.star": SPOT_SHARE})
    got = {_as_rule(right) for right in (*needed_rights(OBJECTS), *rights_of_policies(reading))}
    assert got == _granted("cluster-role.yaml", "") | _granted("role.yaml", "starsched")


def test_policies_that_read_no_workload_need_no_right_to_list_deployments() -> None:
    assert rights_of_policies(build_bundle({})) == []


def test_the_rules_that_are_printed_grant_exactly_the_rights() -> None:
    rights = needed_rights(OBJECTS)
    manifests = granting(rights, "system:serviceaccount:a:b", "x")
    granted = {
        (role["metadata"].get("namespace", ""), group, resource, name, verb)
        for role in manifests
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }
    assert granted == {_as_rule(right) for right in rights}
    subjects = [one["subjects"] for one in manifests if one["kind"].endswith("Binding")]
    assert subjects == [[{"kind": "ServiceAccount", "namespace": "a", "name": "b"}]] * 2
    (*_, binding) = granting(rights[:1], "jane", "x")
    assert binding["subjects"][0]["kind"] == "User"


@pytest.mark.parametrize(
    ("states", "want"),
    [
        pytest.param([State.OK, State.NOTE], 0, id="fine"),
        pytest.param([State.OK, State.UNKNOWN, State.MISSING], 1, id="something is missing"),
        pytest.param([State.OK, State.UNKNOWN], 3, id="could not be checked: never fine"),
    ],
)
def test_the_exit_code_says_what_was_found(states: list[State], want: int) -> None:
    assert exit_code(Finding("c", "s", state) for state in states) == want


def test_the_table_fits_eighty_columns() -> None:
    right = Right(resources.CSI_STORAGE_CAPACITIES, "", "list", "read by decisions", "n" * 63, "x")
    findings = [
        Finding("right", str(right), State.MISSING, "long " * 40, right=right),
        Finding("policies", "\x1b[31m" + "a" * 200, State.UNKNOWN, remedy="b-" * 90),
    ]
    text = as_text(findings, [])
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text


# --- on a cluster ------------------------------------------------------------------------------


def _run(kubeconfig: Path, *arguments: str) -> tuple[Result, dict[str, Any]]:
    result = CliRunner().invoke(
        main, ["preflight", f"--kubeconfig={kubeconfig}", "--output=json", *arguments]
    )
    return result, json.loads(result.stdout) if result.exit_code in (0, 1, 3) else {}


def _found(answer: dict[str, Any], state: str) -> list[str]:
    return [
        f"{one['check']} {one['subject']}" for one in answer["findings"] if one["state"] == state
    ]


def test_a_server_that_is_away_is_not_checked_and_not_fine(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],
                "users": [{"name": "a", "user": {}}],
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "current-context": "a",
            }
        )
    )
    result, answer = _run(path, "--secure-port=0")
    assert result.exit_code == 3
    assert {"right not asked", "lease not asked", "clock not asked"} <= {*_found(answer, "unknown")}
    assert "policies builtin" in _found(answer, "ok")
    empty = tmp_path / "empty"
    empty.mkdir()
    result, answer = _run(path, "--secure-port=0", f"--policies={empty}")
    assert f"policies {empty}" in _found(answer, "note")
    assert "the built-in ones decide" in result.output
    # A scheduler that starts now waits for the server.
    result, answer = _run(path, "--secure-port=0", "--at-start")
    assert (result.exit_code, answer["exitCode"]) == (0, 0)
    assert "right not asked" in _found(answer, "unknown")


def test_an_administrator_lacks_nothing_but_the_objects(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    kubeconfig = control_plane.kubeconfig(tmp_path / "kubeconfig")
    result, answer = _run(kubeconfig)
    assert result.exit_code == 0, result.output
    assert not answer["rules"]
    kinds = {one["check"] for one in answer["findings"]}
    assert {"API server", "clock", "version", "right", "namespace", "lease"} <= kinds
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: s, plugins: {bind: {disabled: [{name: '*'}]}}}]\n"
    )
    result, answer = _run(kubeconfig, f"--config={config}", "--policies=configmap:nowhere/policies")
    assert result.exit_code == 1
    missing = _found(answer, "missing")
    assert any("at least one bind plugin" in one for one in missing)
    assert "namespace nowhere" in missing
    assert any("policies configmap:nowhere/policies" in one for one in missing)


@pytest.mark.parametrize("lacks", ["", "the right to place pods"])
def test_a_scheduler_starts_without_good_policies_and_not_without_a_right(
    control_plane: ControlPlane, limited: Path, tmp_path: Path, lacks: str
) -> None:
    """An init container must not keep a scheduler from its last good policies."""
    (tmp_path / "bad.star").write_text("def filter(pod, node):\n    return node.naem\n")
    arguments = ("--secure-port=0", f"--policies={tmp_path}")
    lease = "--leader-elect-resource-namespace=kube-system"
    for rule in _run(limited, lease, *arguments)[1]["rules"]:
        if lacks and rule["kind"] == "ClusterRole":
            rule["rules"] = [one for one in rule["rules"] if one["resources"] != ["pods/binding"]]
        control_plane.request("POST", _rule_paths()[rule["kind"]], rule)
    want = ["right create pods/binding"] if lacks else []

    def is_seen() -> bool:
        _, answer = _run(limited, lease, "--at-start", *arguments)
        return _found(answer, "missing") == want

    wait_until(is_seen, seconds=30, what="the rules to be seen")
    result, answer = _run(limited, lease, "--at-start", *arguments)
    assert result.exit_code == len(want)
    assert any("`node` has no field `naem`" in one for one in _found(answer, "note"))


@pytest.fixture
def limited(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig of an account without any rights; its rules are deleted afterwards."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "preflight-test"}}
    accounts = "/api/v1/namespaces/kube-system/serviceaccounts"
    control_plane.create_if_missing(accounts, account)
    token = control_plane.request(
        "POST",
        f"{accounts}/preflight-test/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    )["status"]["token"]
    given = yaml.safe_load(control_plane.kubeconfig(tmp_path / "admin").read_text())
    given["users"] = [{"name": given["users"][0]["name"], "user": {"token": token}}]
    path = tmp_path / "limited"
    path.write_text(yaml.safe_dump(given))
    yield path
    for where in _rule_paths().values():
        control_plane.request("DELETE", f"{where}/starsched-preflight")


def _rule_paths(namespace: str = "kube-system") -> dict[str, str]:
    root = "/apis/rbac.authorization.k8s.io/v1"
    return {
        "ClusterRole": f"{root}/clusterroles",
        "ClusterRoleBinding": f"{root}/clusterrolebindings",
        "Role": f"{root}/namespaces/{namespace}/roles",
        "RoleBinding": f"{root}/namespaces/{namespace}/rolebindings",
    }


def test_each_right_that_is_missing_is_named_and_the_printed_rules_mend_it(
    control_plane: ControlPlane, limited: Path
) -> None:
    """Without the right to list disruption budgets a protected pod was evicted, at level INFO."""
    lease = "--leader-elect-resource-namespace=kube-system"
    result, answer = _run(limited, lease)
    assert result.exit_code == 1, result.output
    missing = _found(answer, "missing")
    assert "right list poddisruptionbudgets.policy" in missing
    assert "right create pods/binding" in missing
    assert "namespace kube-system" in _found(answer, "unknown")
    for rule in answer["rules"]:
        control_plane.request("POST", _rule_paths()[rule["kind"]], rule)
    role = f"{_rule_paths()['ClusterRole']}/starsched-preflight"

    def mended() -> bool:
        return _run(limited, lease)[0].exit_code == 0

    wait_until(mended, seconds=30, what="the rules to be seen")
    # One taken away: it alone is named.
    rules = control_plane.request("GET", role)
    budgets = [one for one in rules["rules"] if one["resources"] == ["poddisruptionbudgets"]]
    rules["rules"] = [one for one in rules["rules"] if one not in budgets]
    control_plane.request("PUT", role, rules)

    def named() -> bool:
        return _found(_run(limited, lease)[1], "missing") == [
            "right list poddisruptionbudgets.policy",
            "right watch poddisruptionbudgets.policy",
        ]

    wait_until(named, seconds=30, what="the rule to be gone")


DENIED: Final = ("create", "pods/binding")


async def _preflight_process(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "workbench.cli.main", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (out + err).decode()


@pytest.mark.slow("starts programs")
async def test_a_start_with_preflight_ends_where_a_right_is_missing(tmp_path: Path) -> None:
    async with DevCluster() as cluster:
        kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig")
        shared = (f"--kubeconfig={kubeconfig}", "--secure-port=0")
        code, said = await _preflight_process("preflight", *shared)
        assert code == 0, said
        assert "nothing is missing" in said
        assert max(map(len, said.splitlines())) <= 80
        cluster.access.denied.add(DENIED)
        code, said = await _preflight_process("preflight", *shared)
        assert code == 1, said
        assert "create pods/binding" in said
        assert "kind: ClusterRoleBinding" in said
        code, said = await _preflight_process("run", "--preflight", *shared)
        assert code == 1, said
        assert '"subject":"create pods/binding"' in said
        assert "In sync" not in said


async def test_reviews_that_are_refused_are_unknown() -> None:
    async with DevCluster() as cluster, ApiClient(Endpoint(server=cluster.url)) as client:
        cluster.faults.fail(403, times=None, resource="selfsubjectaccessreviews")
        found = await ClusterChecks(client, Objects()).run()
        rights = {one.state for one in found if one.check == "right"}
        assert rights == {State.UNKNOWN}
        assert exit_code(found) == 3


@pytest.mark.parametrize(
    ("seconds", "state"),
    [
        pytest.param(0.0, State.OK, id="the same"),
        pytest.param(4.0, State.OK, id="a little"),
        pytest.param(60.0, State.MISSING, id="ahead"),
        pytest.param(-60.0, State.MISSING, id="behind"),
    ],
)
async def test_clocks_that_differ_are_found_by_the_date_of_an_answer(
    seconds: float, state: State
) -> None:
    async with DevCluster() as cluster, ApiClient(Endpoint(server=cluster.url)) as client:
        here = client.clock.now
        client.clock.now = lambda: here() + seconds  # type: ignore[method-assign]  # of this client
        found = await ClusterChecks(client, Objects()).run()
        assert [one.state for one in found if one.check == "clock"] == [state]


# --- certificates ------------------------------------------------------------------------------


def test_a_certificate_is_dated_and_belongs_to_its_key(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    _, key = authority.issue("a")
    cert, other = authority.issue("b")
    assert certificate(cert, other, 0).state is State.MISSING
    assert "only from" in certificate(cert, other, 0).detail
    assert "expired" in certificate(cert, other, 1e11).detail
    assert "another certificate" in certificate(cert, key, 0).detail
    assert trusted(tmp_path / "nowhere", 0).state is State.MISSING
    cert.write_text("none")
    assert trusted(cert, 0).state is State.MISSING
