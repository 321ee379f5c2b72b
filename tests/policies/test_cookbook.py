"""The cookbook has what policy authors ask for first, without a caveat.

Each of these is a policy of the cookbook, and the tests next to it say what it decides, in the hard
cases too:

| what authors ask for | recipe | its tests decide |
| --- | --- | --- |
| spread over racks, at most N of an app or of a team in each | rack_spread | caps per rack |
| bin-pack GPUs, and keep N whole nodes free | whole_gpu_nodes | the last whole nodes are kept |
| spot nodes with a label only, 30 % of a Deployment at most | spot_share | shares of its replicas |
| batch pods only at night | business_hours | each hour, over midnight, weekends |
| at most N pods of one owner on a node | pods_per_node | ReplicaSets and Jobs, an update |
| the image is there, in the zone of the volume | image_and_volume_zone | CSI volumes, labels |
| a quota by amounts for each team | team_quota | sums over namespaces, to a millicore |
| pods that wait gain priority | ageing | how many points an hour is worth |
"""

import re

import pytest

from engine.policy.bundle import build_bundle
from engine.policy.shipped import recipes
from engine.testing.runner import describe, discover, run_tests

WISHES = re.findall(r"^\| [^|]+ \| (\w+) \|", __doc__ or "", re.MULTILINE)[1:]

# All at once, as in a cluster that wants all of it.
_PROFILE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      queueSort: {enabled: [{name: ageing}], disabled: [{name: "*"}]}
      multiPoint: {enabled: [RECIPES]}
"""
_TOGETHER = """
load("@std/testing.star", "asserts", "cluster", "make_node", "make_pod")

def test_a_pod_that_no_recipe_is_about_is_placed():
    nodes = cluster(make_node("a"), make_node("b", zone = "z"))
    asserts.fits(nodes, make_pod(cpu = 1), "a", "b", profile = "default-scheduler")
"""


@pytest.mark.parametrize("recipe", WISHES)
def test_what_authors_ask_for_is_there_and_decides_as_its_tests_say(recipe: str) -> None:
    text, test = recipes()[recipe].text, recipes()[recipe].test
    bundle = build_bundle({f"{recipe}.star": text, f"{recipe}_test.star": test})
    results = list(run_tests(bundle, discover(bundle)))
    assert len(results) >= 4
    assert [describe(result) for result in results if not result.passed] == []


def test_there_are_eight_of_them() -> None:
    assert len(WISHES) == 8


def test_all_recipes_can_be_used_at_once() -> None:
    files = {f"{name}.star": recipe.text for name, recipe in recipes().items()}
    names = ", ".join(f"{{name: {name}}}" for name in recipes() if name != "ageing")
    files["profile.yaml"] = _PROFILE.replace("RECIPES", names)
    files["together_test.star"] = _TOGETHER
    bundle = build_bundle(files)
    results = list(run_tests(bundle, discover(bundle)))
    assert [(describe(result), result.passed) for result in results] == [("", True)]


@pytest.mark.parametrize("name", sorted(recipes()))
def test_a_recipe_reads_no_more_of_labels_than_it_names(name: str) -> None:
    """Labels that differ from pod to pod would make each pod a kind of its own."""
    (policy,) = [
        p
        for p in build_bundle({f"{name}.star": recipes()[name].text}).policies.values()
        if p.name == name
    ]
    read = {path for reads in policy.hooks.values() for path in reads.pod}
    assert not read & {"labels", "annotations", "manifest", "name", "uid", "namespace_labels"}


@pytest.mark.parametrize("name", sorted(recipes()))
def test_the_first_sentence_of_a_recipe_fits_into_its_line_of_the_list(name: str) -> None:
    longest = max(map(len, recipes()))
    assert len(recipes()[name].does) <= 80 - longest - 2
