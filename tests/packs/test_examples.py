"""The example of every pack is what its page says: a profile that works, and workloads for it."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from engine.core.model.pod import Pod
from engine.policy.bundle import build_bundle
from engine.policy.shipped import PACKS, pack_modules, snake_case
from engine.testing.runner import describe, discover, run_tests
from workbench.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "deploy" / "examples"


@pytest.mark.parametrize("pack", PACKS)
def test_every_pack_has_its_page_its_tests_and_its_example(pack: str) -> None:
    page = (ROOT / "docs" / "packs" / f"{pack}.md").read_text()
    assert f"](../../deploy/examples/{pack})" in page
    names = {path.name for path in (ROOT / "policies" / pack).glob("*.star")}
    for name in PACKS[pack]:
        assert {f"{snake_case(name)}.star", f"{snake_case(name)}_test.star"} <= names
    example = EXAMPLES / pack
    kustomization = yaml.safe_load((example / "kustomization.yaml").read_text())
    [generated] = kustomization["configMapGenerator"]
    there = {path.name for path in example.iterdir()} - {"kustomization.yaml"}
    assert generated["files"] == ["profile.yaml"]
    # Those of riya are applied one by one, in the order that shows what it does.
    assert {"profile.yaml", *kustomization.get("resources", ())} <= there
    assert len(there) > 1
    result = CliRunner().invoke(main, ["check", "--strict", str(example / "profile.yaml")])
    assert (result.exit_code, result.output) == (
        0,
        "1 configuration file(s) checked: no problems\n",
    )


@pytest.mark.parametrize("pack", PACKS)
def test_the_profile_of_the_example_uses_the_pack(pack: str) -> None:
    bundle = build_bundle({"profile.yaml": (EXAMPLES / pack / "profile.yaml").read_text()})
    assert not bundle.warnings
    (profile,) = bundle.profiles
    used = {e.policy for enabled in profile.points.values() for e in enabled}
    assert used & set(PACKS[pack])


@pytest.mark.parametrize("pack", PACKS)
def test_the_workloads_of_the_example_ask_for_its_scheduler(pack: str) -> None:
    (profile,) = build_bundle(
        {"profile.yaml": (EXAMPLES / pack / "profile.yaml").read_text()}
    ).profiles
    files = [p for p in (EXAMPLES / pack).glob("*.yaml") if p.stem not in _OTHERS]
    assert files
    for file in files:
        for manifest in yaml.safe_load_all(file.read_text()):
            is_pod = manifest["kind"] == "Pod"
            pod = manifest if is_pod else manifest["spec"]["template"]
            assert pod["spec"]["schedulerName"] == profile.scheduler_name
            assert not Pod.from_plain({"metadata": {"name": "x"}, **pod}).problems


_OTHERS = ("profile", "kustomization")


@pytest.mark.slow("compares much")
@pytest.mark.parametrize("pack", PACKS)
def test_the_workloads_of_the_example_are_placed_by_its_profile(pack: str, tmp_path: Path) -> None:
    room = {"cpu": "64", "memory": "512Gi", "pods": "110", "alibabacloud.com/gpu-count": "8"}
    labels = {"alibabacloud.com/gpu-card-model": "V100M16"}
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "status": {"allocatable": room},
        }
        for name in ("n1", "n2")
    ]
    cluster = tmp_path / "nodes.yaml"
    cluster.write_text(yaml.safe_dump_all(nodes))
    files = [str(p) for p in (EXAMPLES / pack).glob("*.yaml") if p.stem not in _OTHERS]
    config = str(EXAMPLES / pack / "profile.yaml")
    result = CliRunner().invoke(
        main, ["simulate", str(cluster), *files, "--config", config, "--output", "json"]
    )
    answer = json.loads(result.stdout)
    assert answer["arrived"] > 1
    # One workload of riya shows its gate: two pods of a group that wants three.
    gated = {"less than minAvailable: pods in group (2) < minAvailable (3)": 2}
    waiting = {one["reason"]: one["pods"] for one in answer["reasons"]}
    assert waiting == (gated if pack == "riya" else {})
    assert answer["placed"] == answer["arrived"] - sum(waiting.values())


@pytest.mark.slow("compares much")
@pytest.mark.parametrize("name", pack_modules())
def test_an_ejected_policy_of_a_pack_passes_its_tests_as_ones_own(
    name: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(main, ["eject", name, "--with-test", "--to", str(tmp_path)])
    assert result.exit_code == 0
    bundle = build_bundle({path.name: path.read_text() for path in tmp_path.iterdir()})
    results = list(run_tests(bundle, discover(bundle)))
    assert results
    assert [describe(r) for r in results if not r.passed] == []
