"""What a bundle decides without the policies that are only counted."""

import pytest

from engine.policy.bundle import Bundle, build_bundle
from engine.policy.shadowed_policies import without_shadowed
from tests.profiles import only

PICKY = {
    "config.yaml": only("NodeResourcesFit", "picky"),
    "picky.star": (
        'def filter(pod, node):\n    return "no"\n\n\ndef score(pod, node):\n    return 7\n\n\n'
        "def normalize(score, over):\n    return score + over.max\n"
    ),
}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return build_bundle(PICKY)


def enabled(bundle: Bundle, hook: str) -> list[str]:
    return [one.policy for one in bundle.profiles[0].at(hook)]


def test_nothing_is_left_out_of_what_is_obeyed(bundle: Bundle) -> None:
    assert without_shadowed(bundle, (), "here") is bundle


def test_a_policy_is_left_out_at_all_its_hooks(bundle: Bundle) -> None:
    obeyed = without_shadowed(bundle, ["picky"], "here")
    for hook in ("filter", "score", "normalize"):
        assert "picky" in enabled(bundle, hook)
        assert "picky" not in enabled(obeyed, hook)
    assert enabled(obeyed, "queue_key") == enabled(bundle, "queue_key")
    assert not obeyed.warnings[len(bundle.warnings) :]


@pytest.mark.parametrize(
    ("entry", "gone", "kept"),
    [
        ("picky/filter", ["filter"], ["score", "normalize"]),
        ("picky/score", ["score", "normalize"], ["filter"]),
    ],
)
def test_a_hook_is_left_out_with_its_parts(
    bundle: Bundle, entry: str, gone: list[str], kept: list[str]
) -> None:
    obeyed = without_shadowed(bundle, [entry], "here")
    assert not any("picky" in enabled(obeyed, hook) for hook in gone)
    assert all("picky" in enabled(obeyed, hook) for hook in kept)


def test_to_obey_it_again_is_another_revision(bundle: Bundle) -> None:
    revisions = {
        without_shadowed(bundle, entries, "here").revision
        for entries in ([], ["picky"], ["picky/filter"], ["picky/score"])
    }
    assert len(revisions) == 4
    again = without_shadowed(build_bundle(PICKY), ["picky"], "here")
    assert again.revision in revisions
    assert all(len(revision) == len(bundle.revision) for revision in revisions)


@pytest.mark.parametrize("entry", ["pikcy", "picky/permit", "PrioritySort"])
def test_what_is_not_there_to_be_left_out_is_said(bundle: Bundle, entry: str) -> None:
    obeyed = without_shadowed(bundle, [entry], "ConfigMap `ns/p-rollout`")
    assert obeyed.revision == bundle.revision
    assert obeyed.profiles == bundle.profiles
    said = [str(one) for one in obeyed.warnings if "p-rollout" in one.file]
    assert len(said) == 1
    assert f"`{entry}`" in said[0]
