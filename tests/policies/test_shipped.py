"""The shipped policies: their own tests pass, and each keeps the form of the house."""

import ast
from pathlib import Path

import pytest
import yaml

from engine.core.caching.cache import Cache
from engine.files.policy_files import read_policy_files
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator, PolicyFailure
from engine.policy.projections import Projector
from engine.policy.shipped import PACKS, QUEUE_PACKS, pack_modules, shipped_files
from engine.testing.fixtures import DirectoryFiles
from engine.testing.runner import describe, discover, run_tests
from tests.builders import make_pod

POLICIES = Path(__file__).parents[2] / "policies"
FOLDERS = ("kubernetes", "examples", "cookbook", *PACKS, *QUEUE_PACKS)
FILES = sorted(path for path in POLICIES.glob("*/*.star") if path.parent.name in FOLDERS)
SHIPPED = [path for path in FILES if not path.name.endswith("_test.star")]


def test_every_folder_of_policies_is_known() -> None:
    folders = {path.parent.name for path in POLICIES.glob("*/*.star")}
    assert folders == {*FOLDERS, "std"}


def test_every_file_of_a_pack_is_a_policy_with_a_name() -> None:
    found = {
        path
        for path in shipped_files()
        if path.partition("/")[0][1:] in (*PACKS, *QUEUE_PACKS) and not path.endswith("_test.star")
    }
    assert found == set(pack_modules().values())


def test_packs_take_part_only_where_a_profile_names_them() -> None:
    (profile,) = build_bundle({}).profiles
    used = {e.policy for enabled in profile.points.values() for e in enabled}
    assert used.isdisjoint(pack_modules())
    for name in (name for names in PACKS.values() for name in names):
        text = f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{{plugins: {{multiPoint: {{enabled: [{{name: {name}}}]}}, queueSort: {{}}}}}}]
"""
        if "queue_key" in build_bundle({}).policies[name].hooks:
            text = text.replace("queueSort: {}", "queueSort: {disabled: [{name: PrioritySort}]}")
        (profile,) = build_bundle({"profile.yaml": text}).profiles
        assert name in {e.policy for enabled in profile.points.values() for e in enabled}


@pytest.mark.parametrize("name", [name for names in QUEUE_PACKS.values() for name in names])
def test_a_policy_of_queues_governs_a_tree_that_names_it(name: str) -> None:
    tree = {
        "apiVersion": "starsched.dev/v1",
        "kind": "QueueTree",
        "policy": name,
        "queues": {"research": {}, "research/vision": {}},
    }
    bundle = build_bundle({"tree.yaml": yaml.safe_dump(tree)})
    assert bundle.queue_tree is not None
    assert {"queue_of"} < set(bundle.queue_tree.hooks)
    assert not bundle.warnings


@pytest.mark.budget(6, "all tests of a folder of policies")
@pytest.mark.parametrize("pack", FOLDERS)
def test_the_tests_next_to_the_policies_pass(pack: str) -> None:
    (files,) = read_policy_files([POLICIES / pack])
    bundle = build_bundle(dict(files.texts), None)
    reader = DirectoryFiles(POLICIES / pack)
    results = list(run_tests(bundle, discover(bundle), files=lambda _: reader))
    assert results
    assert not [result for result in results if result.skipped]
    assert [f"{r.file}:{r.line}: {describe(r)}" for r in results if not r.passed] == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_policy_has_a_test_next_to_it(path: Path) -> None:
    test = path.with_name(f"{path.stem}_test.star")
    assert f'"""Tests for {path.name}."""' in test.read_text()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_policy_says_what_it_does_with_which_hooks(path: Path) -> None:
    tree = ast.parse(path.read_text())
    doc = ast.get_docstring(tree)
    assert doc is not None
    (policy,) = [
        p
        for p in build_bundle({path.name: path.read_text()}, None).policies.values()
        if p.module == path.name
    ]
    answer = doc.replace("\n", " ")
    assert set(answer.split("Hooks: ")[1].split(". ")[0].split(", ")) == set(policy.hooks)
    assert "Reads: " in answer


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_policy_is_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    # One file has all the rules by which a tree of queues is governed.
    assert len(lines) <= (190 if path.parent.name == "fairness" else 135)
    assert max(len(line) for line in lines) <= 100


def test_terms_of_affinity_over_one_topology_are_counted_once() -> None:
    """A counter holds all terms: a thousand of a thousand each took seconds of everybody's time."""
    bundle = build_bundle({})
    instances = bundle.program.instances
    index = next(i for i, one in enumerate(instances) if one.policy == "InterPodAffinity")
    terms = [
        {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "db"}}}
        for key in ("zone", "host", "zone")
    ]
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    given = Projector("pod", ["term_topologies"]).project(
        make_pod("web", affinity=affinity), Cache().snapshot()
    )
    call = Call(index, "counters", given)
    ((found,),) = InProcessEvaluator(bundle.program).evaluate([call])
    assert not isinstance(found, PolicyFailure), found
    *close, _unwanted = found["filter"]
    assert [part["topology"] for (part,) in close] == ["zone", "host"]
    assert {part["of"] for (part,) in close} == {"required_affinity"}
