"""The shipped policies: their own tests pass, and each keeps the form of the house."""

import ast
from pathlib import Path

import pytest

from engine.offline.policy_files import read_policy_files
from engine.offline.policy_tests import describe, discover, run_tests
from engine.policy.bundle import build_bundle

POLICIES = Path(__file__).parents[2] / "policies"
FILES = sorted(
    path for path in POLICIES.glob("*/*.star") if path.parent.name in ("kubernetes", "examples")
)
SHIPPED = [path for path in FILES if not path.name.endswith("_test.star")]


@pytest.mark.parametrize("pack", ["kubernetes", "examples"])
def test_the_tests_beside_the_policies_pass(pack: str) -> None:
    (files,) = read_policy_files([POLICIES / pack])
    bundle = build_bundle(dict(files.texts), None)
    results = list(run_tests(bundle, discover(bundle)))
    assert results
    assert [f"{r.file}:{r.line}: {describe(r)}" for r in results if not r.passed] == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_policy_has_a_test_beside_it(path: Path) -> None:
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
    said = doc.replace("\n", " ")
    assert set(said.split("Hooks: ")[1].split(". ")[0].split(", ")) == set(policy.hooks)
    assert "Reads: " in said


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_policy_is_short(path: Path) -> None:
    lines = path.read_text().splitlines()
    assert len(lines) <= 135
    assert max(len(line) for line in lines) <= 100
