"""`deploy/examples/fairness`: two teams that share a cluster, as a stranger applies it."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from engine.policy.bundle import build_bundle
from workbench.cli.main import main

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy" / "examples" / "fairness"
POLICIES = EXAMPLE / "policies"


def _workloads() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((EXAMPLE / "workloads.yaml").read_text()))


def test_the_example_is_whole_and_its_page_links_it() -> None:
    page = (ROOT / "docs" / "packs" / "fairness.md").read_text()
    assert "](../../deploy/examples/fairness)" in page
    kustomization = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text())
    [generated] = kustomization["configMapGenerator"]
    policies = sorted(path.name for path in POLICIES.iterdir())
    assert sorted(generated["files"]) == [f"policies/{name}" for name in policies]
    assert kustomization["resources"] == ["workloads.yaml"]
    bundle = build_bundle({name: (POLICIES / name).read_text() for name in policies})
    assert not bundle.warnings
    assert bundle.queue_tree is not None
    queues = {one.name for one in bundle.queue_tree.given}
    (profile,) = bundle.profiles
    for one in _workloads():
        template = one["spec"]["template"]
        assert template["spec"]["schedulerName"] == profile.scheduler_name
        assert template["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] in queues


@pytest.mark.slow("simulates twice")
@pytest.mark.parametrize(
    ("cores", "want"), [(64, {"research": 8, "web": 8}), (8, {"research": 6, "web": 2})]
)
def test_teams_get_what_they_want_or_three_quarters_and_one(
    cores: int, want: dict[str, int], tmp_path: Path
) -> None:
    room = {"cpu": str(cores), "memory": "64Gi", "pods": "110"}
    nodes = tmp_path / "nodes.yaml"
    nodes.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {"allocatable": room},
            }
        )
    )
    command = ["simulate", str(nodes), str(EXAMPLE / "workloads.yaml"), "--policies", str(POLICIES)]
    result = CliRunner().invoke(main, [*command, "--output", "json"])
    answer = json.loads(result.stdout)
    assert answer["placed"] == sum(want.values())
    got = {one["queue"]: one["placed"] for one in answer["queues"]["queues"]}
    assert got == want
