"""The example of every pack is what its page says: a profile that works, and workloads for it."""

from pathlib import Path

import pytest
import yaml

from engine.model.pod import Pod
from engine.policy.builtin import PACKS
from engine.policy.bundle import build_bundle

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples"


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
