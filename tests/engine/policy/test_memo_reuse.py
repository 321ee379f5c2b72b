"""Which policies go on unchanged, by text, by what they load, by arguments and limits."""

from collections.abc import Mapping, Sequence

import pytest

from engine.policy.bundle import Bundle, build_bundle
from engine.policy.memo_reuse import reusable_entries, unchanged_instances
from tests.profiles import only

FILES = {
    "near.star": 'load("lib.star", "far")\n\ndef filter(pod, node):\n    return far(node)\n',
    "lib.star": 'load("deep.star", "WORD")\n\ndef far(node):\n    return WORD\n',
    "deep.star": "WORD = None\n",
    "own.star": (
        "args = plugin_args(most = 3, names = {})\n\ndef score(pod, node):\n    return args.most\n"
    ),
}
POLICIES = ("near", "own", "NodeName")


def bundle_of(
    files: Mapping[str, str], args: str = "most: 4", policies: Sequence[str] = POLICIES
) -> Bundle:
    config = f"  pluginConfig:\n  - {{name: own, args: {{{args}}}}}\n"
    return build_bundle({**files, "profile.yaml": only(*policies) + config})


def changed(before: Bundle, now: Bundle) -> set[str]:
    """The policies of *now* with hooks that do not go on; the others do, under the same name."""
    same = unchanged_instances(before.program, now.program)
    for old, new in same.items():
        assert before.program.instances[old].policy == now.program.instances[new].policy
    return {
        instance.policy
        for index, instance in enumerate(now.program.instances)
        if index not in same.values() and now.policies[instance.policy].hooks
    }


BEFORE = bundle_of(FILES)


def test_nothing_changes_without_a_change() -> None:
    assert changed(BEFORE, bundle_of(FILES)) == set()


@pytest.mark.parametrize("last", ["_X = 1 \\\n", '_X = "\\N{DASH}"\n'])
def test_a_policy_that_python_cannot_read_changes_with_any_file(last: str) -> None:
    """What it loads was not seen: answers by a function were kept when its file was edited."""
    before = {**FILES, "near.star": FILES["near.star"] + last}
    edited = {**before, "lib.star": FILES["lib.star"] + "\n_MORE = 1\n"}
    assert changed(bundle_of(before), bundle_of(edited)) == {"near"}


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("near.star", {"near"}),
        ("lib.star", {"near"}),
        ("deep.star", {"near"}),
        ("own.star", {"own"}),
    ],
)
def test_a_policy_changes_with_what_it_loads(file: str, wanted: set[str]) -> None:
    edited = {**FILES, file: FILES[file] + "\n_MORE = 1\n"}
    assert changed(BEFORE, bundle_of(edited)) == wanted


@pytest.mark.parametrize("args", ["most: 5", "most: 4, names: {a: 1}"])
def test_a_policy_changes_with_its_arguments(args: str) -> None:
    assert changed(BEFORE, bundle_of(FILES, args)) == {"own"}


def test_arguments_that_are_equal_to_python_alone_are_a_change() -> None:
    texts = ["names: {a: 1, b: 1}", "names: {a: true, b: 1}", "names: {a: 1.0, b: 1}"]
    texts.append("names: {b: 1, a: 1}")
    bundles = [bundle_of(FILES, text) for text in texts]
    for before in bundles:
        for now in bundles:
            assert changed(before, now) == (set() if before is now else {"own"})


def test_a_policy_that_moves_is_found_again() -> None:
    more = {**FILES, "another.star": "def filter(pod, node):\n    return None\n"}
    now = bundle_of(more, policies=("another", *POLICIES))
    assert changed(BEFORE, now) == {"another"}
    assert changed(now, BEFORE) == set()


def test_a_shipped_policy_that_is_replaced_changes() -> None:
    mine = {**FILES, "node_name.star": "def filter(pod, node):\n    return None\n"}
    assert changed(BEFORE, bundle_of(mine)) == {"NodeName"}
    assert changed(bundle_of(mine), BEFORE) == {"NodeName"}


def test_other_limits_change_every_policy() -> None:
    runtime = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nlimits: {steps: 5000}\n"
    now = bundle_of({**FILES, "runtime.yaml": runtime})
    assert unchanged_instances(BEFORE.program, now.program) == {}
    assert unchanged_instances(now.program, now.program)


def test_the_last_entries_are_reused_in_their_order() -> None:
    known = {(index % 2, "hook", str(index)): index for index in range(20)}
    found = list(reusable_entries(known, {1: 7}, most=3))
    assert found == [((7, "hook", str(index)), index) for index in (15, 17, 19)]
    assert len(list(reusable_entries(known, {0: 0, 1: 1}))) == 20
