"""The pages about policies say what the code does."""

import ast

import pytest

from engine.language import prelude
from engine.language.starlark import LIBRARIES
from engine.policy.bundle import build_bundle
from engine.policy.sandbox.protocol import Limits
from engine.policy.shipped import PACKS, QUEUE_PACKS, shipped_files
from tests.policies.doc_tables import DOCS, DOCUMENTS, hook_pages, rendered, tables

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in DOCUMENTS}
LANGUAGE = PAGES["language"]
CONCEPTS = (DOCS / "policies.md").read_text(encoding="utf-8")


def test_the_tables_are_those_of_the_code() -> None:
    pages = {**dict.fromkeys(DOCUMENTS, tables()), **hook_pages()}
    for path, known in pages.items():
        text = path.read_text(encoding="utf-8")
        assert rendered(text, known) == text, f"{path}: run `python -m tests.policies.doc_tables`"


def test_every_table_is_in_one_page() -> None:
    text = "".join(PAGES.values())
    assert {name: text.count(f"<!-- table: {name} -->") for name in tables()} == dict.fromkeys(
        tables(), 1
    )


@pytest.mark.parametrize("name", [*prelude.names(), *LIBRARIES, "plugin_args"])
def test_every_built_in_is_documented(name: str) -> None:
    section = LANGUAGE.split("### What a hook can return")[1]
    assert any(f"`{name}{after}" in section for after in "`(.")


@pytest.mark.parametrize("pack", [*PACKS, *QUEUE_PACKS])
def test_every_pack_is_documented(pack: str) -> None:
    """Its page names each policy and argument."""
    page = (DOCS / "packs" / f"{pack}.md").read_text(encoding="utf-8")
    policies = build_bundle({}, None).policies
    names = {**PACKS, **QUEUE_PACKS}[pack]
    assert not [name for name in names if f"`{name}`" not in page]
    assert not [
        (name, argument)
        for name in names
        for argument in policies[name].defaults
        if f"`{argument}`" not in page
    ]


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    assert f"| {limits.steps:,} |" in LANGUAGE
    assert f"| nested calls | {limits.call_depth} |" in LANGUAGE
    assert f"| {limits.deadline:g} |" in LANGUAGE
    assert f"| {limits.address_space >> 20} MiB |" in LANGUAGE


def test_the_examples_of_the_document_work() -> None:
    """The first policy and its tests are run as a reader would run them."""
    from engine.testing.runner import discover, run_tests

    blocks = [block.split("```")[0] for block in CONCEPTS.split("```python\n")[1:]]
    policy = next(block for block in blocks if "def filter" in block)
    counting = next(block for block in blocks if "def counters" in block)
    grouping = next(block for block in blocks if "def group_of" in block)
    test = next(block for block in blocks if "def test_" in block)
    files = {
        "too_warm.star": policy,
        "too_warm_test.star": test,
        "spread.star": counting,
        "jobs.star": grouping,
    }
    bundle = build_bundle(files, None)
    results = list(run_tests(bundle, discover(bundle)))
    assert len(results) == 2
    assert not [result for result in results if not result.passed]


@pytest.mark.parametrize("path", sorted(p for p in shipped_files() if "_test" not in p))
def test_every_shipped_file_opens_with_a_docstring(path: str) -> None:
    assert ast.get_docstring(ast.parse(shipped_files()[path]))
