"""Bundles: all that is wrong at once, a revision for the same texts, and the sizes that go."""

import ast
import gc
import time

import pytest

from engine.policy.bundle import build_bundle
from engine.policy.config import decode_configuration
from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator
from engine.policy.hook_signatures import hook_signatures, shipped_signatures
from engine.policy.profiles import DEFAULT_PLUGINS, OPTIONAL_PLUGINS
from engine.policy.shipped import shipped_files, snake_case

FILTER = 'def filter(pod, node): return None if node.unschedulable else "no"\n'
CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_an_empty_bundle_is_the_built_ins() -> None:
    bundle = build_bundle({})
    assert all(policy.is_builtin for policy in bundle.policies.values())
    assert bundle.tests == ()


def test_empty_files_are_no_error() -> None:
    bundle = build_bundle({"a.star": "", "b_test.star": "", "c.yaml": ""})
    assert bundle.tests == ("b_test.star",)
    assert [str(warning) for warning in bundle.warnings] == [
        "a.star: defines no hook, and no file loads it\n"
        "hint: hooks are top-level functions such as `def filter(pod, node)`"
    ]


def test_a_file_that_others_load_needs_no_hook() -> None:
    files = {"lib.star": "def f(): return 1\n", "a.star": 'load("lib.star", "f")\n' + FILTER}
    assert build_bundle(files).warnings == ()


def test_files_that_are_nothing_are_warned_of() -> None:
    (warning,) = build_bundle({"README.md": "# hello"}).warnings
    assert "README.md: not a policy file" in str(warning)


@pytest.mark.parametrize(
    ("files", "want"),
    [
        ({"@std/taints.star": ""}, "@std/taints.star: want a plain file name"),
        ({"a/b.star": ""}, "a/b.star: want a plain file name"),
        ({"b\udcfe.star": ""}, "b?.star: want a name that is UTF-8 text, got other bytes"),
        ({"b\udcfe.yaml": ""}, "b?.yaml: want a name that is UTF-8 text, got other bytes"),
        (
            {"NodeName.star": FILTER, "node_name.star": FILTER},
            "node_name.star: a second file for the policy `NodeName`; the first is `NodeName.star`",
        ),
    ],
)
def test_a_file_name_that_cannot_be(files: dict[str, str], want: str) -> None:
    with pytest.raises(PolicyErrors) as caught:
        build_bundle(files)
    assert want in str(caught.value)


def test_a_policy_says_what_it_is() -> None:
    text = '"""Keeps pods off."""\nargs = plugin_args(n = 3)\n' + FILTER
    policy = build_bundle({"mine.star": text}).policies["mine"]
    assert (policy.name, policy.module) == ("mine", "mine.star")
    assert policy.defaults == {"n": 3}
    assert policy.hooks["filter"].node == {"unschedulable"}


def test_problems_of_all_files_and_documents_come_at_once() -> None:
    files = {
        "a.star": "def filter(pod): pass\n",
        "b.star": "x = (\n",
        "c_test.star": 'load("no.star", "x")\n',
        "d.yaml": CONFIG
        + "paralelism: 3\nprofiles: [{plugins: {score: {enabled: [{name: q}]}}}]\n",
        "e.yaml": "a: [",
    }
    with pytest.raises(PolicyErrors) as caught:
        build_bundle(files)
    assert {problem.file for problem in caught.value.problems} == set(files)
    text = str(caught.value)
    assert "a.star:1:1: filter() lacks the parameter `node`" in text
    assert "profiles[0].plugins.score.enabled[0].name: no plugin or policy file `q`" in text


# --- revision --------------------------------------------------------------------------------


def test_the_revision_is_that_of_the_texts() -> None:
    one, same = build_bundle({"a.star": FILTER}), build_bundle({"a.star": FILTER})
    assert one.revision == same.revision
    assert len(one.revision) == 12
    others = [
        build_bundle({}),
        build_bundle({"b.star": FILTER}),
        build_bundle({"a.star": FILTER + "\n"}),
        build_bundle({"a.star": FILTER, "a_test.star": ""}),
        build_bundle({"a.star": FILTER, "c.yaml": CONFIG}),
        build_bundle({"a.star": FILTER}, decode_configuration(CONFIG)),
    ]
    revisions = {bundle.revision for bundle in others}
    assert len(revisions) == len(others)
    assert one.revision not in revisions


def test_a_configuration_in_two_places_is_refused() -> None:
    with pytest.raises(PolicyErrors, match="given on the command line too"):
        build_bundle({"c.yaml": CONFIG}, decode_configuration(CONFIG))


def test_a_configuration_from_elsewhere_can_be_used_again_and_again() -> None:
    config = decode_configuration(
        CONFIG + "profiles: [{plugins: {filter: {enabled: [{name: mine}]}}}]\n", "--config"
    )
    for _ in range(2):
        with pytest.raises(PolicyErrors) as caught:
            build_bundle({}, config)
        (problem,) = caught.value.problems
        assert problem.file == "--config"
    assert build_bundle({"mine.star": FILTER}, config).profiles


# --- sizes -----------------------------------------------------------------------------------


def _large(files: int) -> dict[str, str]:
    """About 1 MiB of policies that do something."""
    size = (1 << 20) // files
    function = (
        "def _f{n}(pod, node):\n"
        "    total = 0\n"
        '    for name in ("cpu", "memory"):\n'
        "        total += node.allocatable.get(name, 0) - pod.requests.get(name, 0)\n"
        "    return total if total > {n} else {n}\n\n"
    )
    texts = {}
    for number in range(files):
        parts: list[str] = []
        length = 60
        while True:
            part = function.format(n=len(parts))
            if length + len(part) > size:
                break
            parts.append(part)
            length += len(part)
        texts[f"p{number}.star"] = "".join(parts) + "def score(pod, node): return _f0(pod, node)\n"
    return texts


@pytest.mark.slow("computes for long")
@pytest.mark.parametrize(
    "files", [1, pytest.param(40, marks=pytest.mark.long("one file is what takes longest"))]
)
def test_a_mebibyte_of_policies_goes(files: int) -> None:
    texts = _large(files)
    assert sum(map(len, texts.values())) > 1_000_000
    began = time.perf_counter()
    bundle = build_bundle(texts)
    assert time.perf_counter() - began < 60
    assert bundle.policies["p0"].hooks["score"].node == {"allocatable[cpu]", "allocatable[memory]"}
    InProcessEvaluator(bundle.program)


def test_more_than_a_mebibyte_is_refused_with_its_size() -> None:
    with pytest.raises(
        PolicyErrors, match="want at most 1,048,576 bytes of policies, got 1,048,577"
    ):
        build_bundle({"a.star": "#" * ((1 << 20) + 1)})


# --- shipped files ---------------------------------------------------------------------------


def test_building_leaves_no_syntax_trees_to_the_garbage_collector() -> None:
    """A process that decides rarely looks for cycles, so each edit of a large file added to it."""
    functions = "".join(f"def f{n}(a): return [a + 1]\n" for n in range(200))
    files = {"a.star": functions + FILTER}
    build_bundle(files)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)  # what would be freed is kept in `gc.garbage`
    try:
        build_bundle(files)
        gc.collect()
        found = [one for one in gc.garbage if isinstance(one, ast.AST)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert len(found) < 100


def test_every_shipped_policy_has_a_plugins_name() -> None:
    stems = {snake_case(name) for name in (*DEFAULT_PLUGINS, *OPTIONAL_PLUGINS)}
    for path in shipped_files():
        if path.startswith("@kubernetes/") and not path.endswith("_test.star"):
            assert path.removeprefix("@kubernetes/").removesuffix(".star") in stems


def test_hooks_of_shipped_files_are_read_from_their_text_as_they_are_parsed() -> None:
    for module, text in shipped_files().items():
        assert shipped_signatures(text) == hook_signatures(text), module
