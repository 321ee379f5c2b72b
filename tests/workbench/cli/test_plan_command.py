"""`starsched plan` and `starsched apply`, on the embedded API server and a real one."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from tests.contract.conftest import wanted_api
from tests.contract.harness import Api
from tests.controlplane import ControlPlane
from tests.deploy.rendering import DEPLOY
from tests.engine.core.kernel.queue_world import FAIR, tree_files
from tests.engine.core.kernel.test_turn_queue import DRF
from workbench.cli.cluster_reading import list_newest
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")

Json = dict[str, Any]

SCORE = '''"""Prefers a node.

Hooks: score. Reads: node.labels["best"].
"""

def score(pod, node):
    return 100 if node.labels.get("best") == "%s" else 0
'''
TEST = '''"""Tests."""

load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")

def test_the_best_wins():
    best = make_node("a", labels = {"best": "%s"})
    asserts.scores(cluster(best), make_pod(), {"a": 100})
'''
PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: %s
  plugins:
    multiPoint: {enabled: [{name: best, weight: 100}]}
"""


@dataclass
class Site:
    """A namespace with two nodes of its own, a ConfigMap of policies, and a directory of them."""

    api: Api
    kubeconfig: Path
    directory: Path
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.api.namespace

    @property
    def policies(self) -> str:
        return self.api.path("configmaps", "starsched-policies")

    def write(self, **texts: str) -> None:
        """Write files into the directory; names without their dots."""
        for name, text in texts.items():
            stem, _, suffix = name.rpartition("_")
            (self.directory / f"{stem}.{suffix}").write_text(text)

    async def run(self, command: str, *arguments: str, kubeconfig: Path | None = None) -> Result:
        words = [command, f"--kubeconfig={kubeconfig or self.kubeconfig}"]
        words += [f"--configmap={self.name}/starsched-policies", *arguments]
        result = await asyncio.to_thread(CliRunner().invoke, main, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    async def plan(self, *arguments: str, code: int) -> Json:
        """The plan of the directory as JSON, which ends with *code*."""
        result = await self.run("plan", str(self.directory), "--output=json", *arguments)
        assert result.exit_code == code, result.output
        found: Json = json.loads(result.stdout)
        return found

    def pod(self, name: str, cpu: str = "1", **spec: Any) -> Json:
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        selector = {"plan-test": self.name}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {
                "schedulerName": self.name,
                "containers": [container],
                "nodeSelector": selector,
                **spec,
            },
        }

    async def data(self) -> dict[str, str]:
        found: dict[str, str] = (await self.api.get(self.policies)).body["data"]
        return found


_REAL = pytest.param("real", marks=pytest.mark.slow("starts the real control plane"))


@pytest.fixture(params=["embedded", _REAL])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with wanted_api(request, "control_plane") as api:
        kubeconfig = tmp_path / "kubeconfig"
        if request.param == "real":
            request.getfixturevalue("control_plane").kubeconfig(kubeconfig)
        else:
            kubeconfig.write_text(yaml.safe_dump(_kubeconfig(api.url)))
        directory = tmp_path / "policies"
        directory.mkdir()
        one = Site(api, kubeconfig, directory)
        one.write(best_star=SCORE % "yes", p_yaml=PROFILE % one.name)
        texts = {path.name: path.read_text() for path in directory.iterdir()}
        await api.make(
            api.path("configmaps"), {"metadata": {"name": "starsched-policies"}, "data": texts}
        )
        for best in ("yes", "no"):
            labels = {"plan-test": one.name, "best": best}
            name = f"{best}-{one.name}"
            await api.make(api.nodes(), _node(name, labels))
        yield one


def _kubeconfig(url: str) -> Json:
    named = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    return {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [named],
    }


def _node(name: str, labels: Json) -> Json:
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": room, "capacity": room},
    }


async def saved(site: Site, revision: str, texts: dict[str, str]) -> None:
    """Write what a scheduler keeps of the policies in force."""
    await site.api.make(
        site.api.path("configmaps"),
        {
            "metadata": {
                "name": "starsched-policies-last-good",
                "annotations": {"starsched.dev/revision": revision},
            },
            "data": texts,
        },
    )


@pytest.mark.budget(4, "the whole way, five commands")
async def test_a_plan_says_what_moves_and_its_index_applies_it_once(site: Site) -> None:
    await site.api.make(site.api.pods(), site.pod("waits"))
    await site.api.make(site.api.pods(), site.pod("runs", nodeName=f"yes-{site.name}"))
    same = await site.plan(code=0)
    assert (same["changed"], same["differences"]) == ([], [])

    site.write(best_star=SCORE % "no", extra_star='"""Nothing."""\n')
    found = await site.plan(code=1)
    measures = found["measures"]
    assert (measures["compared_waiting"], measures["waiting"]) == (1, 1)
    assert (measures["compared_running"], measures["running"]) == (1, 1)
    assert measures["counts"] == {"moved": 2}
    assert {one["pod"] for one in found["differences"]} == {
        f"{site.name}/waits",
        f"{site.name}/runs",
    }
    for one in found["differences"]:
        assert one["before"]["node"] == f"yes-{site.name}"
        assert one["after"]["node"] == f"no-{site.name}"
        assert one["causes"] == ["best.star"]
        assert one["place"] == f"{site.directory}/best.star:7"
        assert "`best` prefers" in one["why"]
    text = (await site.run("plan", str(site.directory))).output
    assert "compared   1 of 1 waiting, 1 of 1 running as if they waited" in text
    assert f"starsched apply {site.directory} --index {found['index']}" in text
    assert "\x1b[" not in text

    # What the ConfigMap holds besides the texts stays.
    labels = {"metadata": {"labels": {"team": "a"}}, "binaryData": {"x.bin": "AAAA"}}
    assert (await site.api.patch(site.policies, labels)).status == 200
    stale = await site.run("apply", str(site.directory), f"--index={found['index']}")
    assert stale.exit_code == 1, stale.output
    assert "refused: the ConfigMap was written" in stale.output
    assert "next: make the plan again with `starsched plan`" in stale.output
    index = (await site.plan(code=1))["index"]
    applied = await site.run("apply", str(site.directory), f"--index={index}")
    assert applied.exit_code == 0, applied.output
    written = (await site.api.get(site.policies)).body
    assert written["data"] == {path.name: path.read_text() for path in site.directory.iterdir()}
    assert written["metadata"]["labels"] == {"team": "a"}
    assert written["binaryData"] == {"x.bin": "AAAA"}
    if not site.api.is_embedded:
        managers = {one["manager"] for one in written["metadata"]["managedFields"]}
        assert "starsched" in managers
    again = await site.run("apply", str(site.directory), f"--index={index}", "--output=json")
    assert again.exit_code == 1
    assert json.loads(again.stdout)["is_applied"] is False


async def test_keys_that_the_directory_has_not_go(site: Site) -> None:
    (site.directory / "p.yaml").rename(site.directory / "q.yaml")
    index = (await site.plan(code=0))["index"]
    assert (await site.run("apply", str(site.directory), f"--index={index}")).exit_code == 0
    assert sorted(await site.data()) == ["best.star", "q.yaml"]


async def test_it_is_compared_with_what_is_in_force_and_not_with_a_text_that_was_refused(
    site: Site,
) -> None:
    await site.api.make(site.api.pods(), site.pod("waits"))
    texts = await site.data()
    await saved(site, "0123456789ab", {**texts, "best.star": SCORE % "no"})
    found = await site.plan(code=1)
    assert found["in_force"] == "0123456789ab"
    assert found["index"].startswith("0123456789ab.")
    assert found["differences"][0]["before"]["node"] == f"no-{site.name}"
    assert any("is not in force" in note for note in found["notes"])


async def test_apply_refuses_once_other_policies_are_in_force(site: Site) -> None:
    texts = await site.data()
    await saved(site, "0123456789ab", texts)
    index = (await site.plan(code=0))["index"]
    path = site.api.path("configmaps", "starsched-policies-last-good")
    note = {"metadata": {"annotations": {"starsched.dev/revision": "ba9876543210"}}}
    assert (await site.api.patch(path, note)).status == 200
    result = await site.run("apply", str(site.directory), f"--index={index}")
    assert result.exit_code == 1
    assert "against 0123456789ab, now it is ba9876543210" in result.output


async def test_a_write_that_crosses_another_one_is_refused_by_the_api_server(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one comes after everything was looked at, and before the write."""
    site.write(best_star=SCORE % "no")
    index = (await site.plan(code=0))["index"]
    loop = asyncio.get_running_loop()

    async def list_late(*arguments: Any) -> Any:
        change = site.api.patch(site.policies, {"data": {"other.star": ""}})
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(change, loop))
        return await list_newest(*arguments)

    monkeypatch.setattr("workbench.cli.apply_command.list_newest", list_late)
    result = await site.run("apply", str(site.directory), f"--index={index}")
    assert result.exit_code == 1, result.output
    assert "was written while this command ran" in result.output
    data = await site.data()
    assert (data["other.star"], data["best.star"]) == ("", SCORE % "yes")


async def test_apply_refuses_texts_that_were_edited_after_the_plan(site: Site) -> None:
    index = (await site.plan(code=0))["index"]
    site.write(best_star=SCORE % "no")
    result = await site.run("apply", str(site.directory), f"--index={index}")
    assert result.exit_code == 1
    assert "are not the ones that were planned" in result.output


async def test_apply_refuses_other_shapes_of_nodes_and_no_further_pods(site: Site) -> None:
    index = (await site.plan(code=0))["index"]
    await site.api.make(site.api.pods(), site.pod("new"))
    assert (await site.run("apply", str(site.directory), f"--index={index}")).exit_code == 0
    index = (await site.plan(code=0))["index"]
    labels = {"plan-test": site.name, "best": "other"}
    await site.api.make(site.api.nodes(), _node(site.api.unique("other"), labels))
    result = await site.run("apply", str(site.directory), f"--index={index}")
    assert result.exit_code == 1
    assert "there are other shapes of nodes" in result.output


async def test_queues_that_vanish_are_applied_only_if_that_is_meant(site: Site) -> None:
    """The tree is edited to nothing: the plan says so, and `apply` asks."""
    policy = DRF.replace('.get("queue")', '.get("queue", "")')
    site.write(
        fair_star=policy, tree_yaml=tree_files(policy, queues={"a": {}, "b": {}})["tree.yaml"]
    )
    first = await site.plan(code=1)
    result = await site.run("apply", str(site.directory), "--index", first["index"])
    assert result.exit_code == 0, result.output
    (site.directory / "tree.yaml").unlink()
    plan = await site.plan(code=1)
    assert (plan["queues"]["vanished"], plan["queues"]["policy_after"]) == (2, "")
    words = ("apply", str(site.directory), "--index", plan["index"])
    refused = await site.run(*words)
    assert refused.exit_code == 1, refused.output
    assert "refused: 2 queues vanish: there is no QueueTree any more" in refused.output
    assert "apply it with --force" in refused.output
    assert "tree.yaml" in await site.data()
    forced = await site.run(*words, "--force")
    assert forced.exit_code == 0, forced.output
    assert "tree.yaml" not in await site.data()


async def test_queues_of_files_are_planned_next_to_the_policies_in_force(
    site: Site, tmp_path: Path
) -> None:
    """Without POLICIES: the objects alone are what would change."""
    kind = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue"}
    site.write(fair_star=FAIR, tree_yaml=tree_files(FAIR, objects=[kind])["tree.yaml"])
    index = (await site.plan(code=0))["index"]
    assert (await site.run("apply", str(site.directory), f"--index={index}")).exit_code == 0
    file = tmp_path / "queue.yaml"
    file.write_text(yaml.safe_dump({**kind, "metadata": {"name": "new"}, "spec": {}}))
    result = await site.run("plan", f"--objects={file}", "--output=json")
    assert result.exit_code == 1, result.output
    plan = json.loads(result.stdout)
    assert (plan["objects"], plan["index"], plan["candidate"]) == (["Queue new"], "", "")
    assert [one["queue"] for one in plan["queues"]["changes"]] == ["new"]
    assert plan["queues"]["place"] == f"{file}:1"
    printed = await site.run("plan", f"--objects={file}")
    assert "objects    Queue new" in printed.output
    assert "index" not in printed.output
    file.write_text(yaml.safe_dump({**kind, "kind": "Cohort", "metadata": {"name": "new"}}))
    refused = await site.run("plan", f"--objects={file}")
    assert refused.exit_code == 2, refused.output
    assert "got `Cohort`" in refused.output


async def test_a_config_map_that_is_not_there_is_made(site: Site) -> None:
    await site.api.delete(site.policies)
    # The built-in policies have another profile, so nothing can be compared.
    index = (await site.plan(code=0))["index"]
    assert index.split(".")[1] == "0"
    assert (await site.run("apply", str(site.directory), f"--index={index}")).exit_code == 0
    assert "best.star" in await site.data()


async def test_a_candidate_with_problems_has_no_index(site: Site) -> None:
    site.write(best_star="def score(pod, node:\n")
    result = await site.run("plan", str(site.directory))
    assert result.exit_code == 2
    assert f"{site.directory}/best.star:1:" in result.output
    assert "index" not in result.output


@pytest.mark.slow("runs the tests of a candidate in processes of their own")
async def test_a_candidate_must_pass_its_tests(site: Site) -> None:
    site.write(best_test_star=TEST % "yes")
    assert (await site.plan(code=0))["tests"] == {"passed": 1, "failed": 0, "skipped": 0}
    site.write(best_star=SCORE % "no")
    found = await site.plan(code=2)
    assert (found["tests"]["failed"], found["index"]) == (1, "")
    (problem,) = found["problems"]
    assert problem["file"] == f"{site.directory}/best_test.star"
    assert "test_the_best_wins" in problem["message"]


async def test_pods_that_do_not_exist_yet_are_decided_in_sequence(
    site: Site, tmp_path: Path
) -> None:
    await site.api.make(site.api.pods(), site.pod("waits"))
    template = {"metadata": {"labels": {"app": "web"}}, "spec": site.pod("", "3")["spec"]}
    web = {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": site.name},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all([web, site.pod("small")]))
    result = await site.run("plan", "-f", str(path), "--output=json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    nodes = {one["pod"].partition("/")[2]: one["outcome"]["node"] for one in found["new_pods"]}
    assert nodes == {
        "web-0": f"yes-{site.name}",
        "web-1": f"no-{site.name}",
        "web-2": "",
        "small": f"yes-{site.name}",
    }
    assert [one["position"] for one in found["new_pods"]] == [2, 3, 4, 5]
    # By other policies.
    site.write(best_star=SCORE % "no")
    result = await site.run("plan", str(site.directory), "-f", str(path), "--output=json")
    assert json.loads(result.stdout)["new_pods"][0]["outcome"]["node"] == f"no-{site.name}"
    text = (await site.run("plan", "-f", str(path))).output
    assert "3 of 4 new pods get a node now" in text
    assert "InsufficientResources" in text


async def test_what_cannot_be_planned_ends_with_2(site: Site, tmp_path: Path) -> None:
    result = await site.run("plan")
    assert (result.exit_code, "want POLICIES, pods with -f" in result.output) == (2, True)
    result = await site.run("plan", str(tmp_path / "absent"))
    assert (result.exit_code, "no such file or directory" in result.output) == (2, True)
    empty = tmp_path / "none.yaml"
    empty.write_text(yaml.safe_dump({"kind": "Service", "metadata": {"name": "x"}}))
    result = await site.run("plan", "-f", str(empty))
    assert result.exit_code == 2, result.output
    other = tmp_path / "other.yaml"
    other.write_text(yaml.safe_dump(site.pod("x", schedulerName="somebody")))
    result = await site.run("plan", "-f", str(other))
    assert result.exit_code == 2
    assert "names the scheduler `somebody`" in result.output
    assert "hint: another scheduler decides it" in result.output
    result = await site.run("apply", str(site.directory), "--index=1.2")
    assert result.exit_code == 2
    assert "want REVISION.RESOURCEVERSION.GENERATION.CANDIDATE" in result.output


async def test_a_config_map_of_no_namespace_cannot_be_made(site: Site) -> None:
    where = f"--configmap={site.name}-absent/policies"
    result = await site.run("plan", str(site.directory), "--output=json", where)
    index = json.loads(result.stdout)["index"]
    result = await site.run("apply", str(site.directory), f"--index={index}", where)
    assert result.exit_code == 2, result.output
    assert "absent" in result.output


@pytest.mark.slow("starts the real control plane")
@pytest.mark.parametrize("site", ["real"], indirect=True)
async def test_the_role_of_a_planner_is_enough_to_plan_and_no_more(
    site: Site, control_plane: ControlPlane, tmp_path: Path
) -> None:
    await site.api.make(site.api.pods(), site.pod("waits"))
    await saved(site, "0123456789ab", await site.data())
    planner = control_plane.kubeconfig(
        tmp_path / "planner", planner_token(control_plane, site.name)
    )
    site.write(best_star=SCORE % "no")
    result = await site.run("plan", str(site.directory), "--output=json", kubeconfig=planner)
    assert result.exit_code == 1, result.output
    # Nothing that it wanted was refused.
    assert "not read" not in result.stderr
    found = json.loads(result.stdout)
    assert found["notes"] == [found["notes"][0]]
    assert "another version" in found["notes"][0]
    index = f"--index={found['index']}"
    denied = await site.run("apply", str(site.directory), index, kubeconfig=planner)
    assert denied.exit_code == 2
    assert "cannot update resource" in denied.output
    assert (await site.data())["best.star"] == SCORE % "yes"
    bind(control_plane, site.name, "rollout.yaml", "starsched-policy-author")
    applied = await site.run("apply", str(site.directory), index, kubeconfig=planner)
    assert applied.exit_code == 0, applied.output


def planner_token(plane: ControlPlane, namespace: str) -> str:
    """The token of a ServiceAccount that is bound to the role for planners."""
    bind(plane, namespace, "readers.yaml", "starsched-planner")
    return plane.service_account_token(namespace, "planner")


def bind(plane: ControlPlane, namespace: str, file: str, name: str) -> None:
    """Bind the ServiceAccount `planner` to a role that is deployed."""
    documents = yaml.safe_load_all((DEPLOY / "base" / file).read_text(encoding="utf-8"))
    role = next(one for one in documents if one["metadata"]["name"] == name)
    path = "/apis/rbac.authorization.k8s.io/v1"
    where = {}
    if role["kind"] == "Role":
        where = {"namespace": namespace}
        role["metadata"] |= where
        path += f"/namespaces/{namespace}"
    plane.create_if_missing(f"{path}/{role['kind'].lower()}s", role)
    binding = {
        "apiVersion": role["apiVersion"],
        "kind": f"{role['kind']}Binding",
        "metadata": {"name": f"planner-{namespace}", **where},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role["kind"],
            "name": name,
        },
        "subjects": [{"kind": "ServiceAccount", "name": "planner", "namespace": namespace}],
    }
    plane.create_if_missing(f"{path}/{role['kind'].lower()}bindings", binding)


@pytest.mark.parametrize("name", ["onlyname", "a/b/c", "/x"])
def test_a_config_map_that_is_misspelt_is_a_usage_error(name: str) -> None:
    result = CliRunner().invoke(main, ["plan", ".", f"--configmap={name}"])
    assert result.exit_code == 2
    assert f"want `NAMESPACE/NAME`, got `{name}`" in result.output
