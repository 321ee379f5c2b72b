"""Fields that are told by a pod's specification alone are the same whatever else it says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from engine.core.caching.objects import ObjectStore
from engine.core.caching.snapshot import Snapshot
from engine.core.model.objects import ObjectMeta, PodManifest, PodSpec, PodStatus
from engine.core.model.pod import Pod
from engine.policy.pod_views import POD_FIELDS, spec_text

RECORDINGS: Final = Path(__file__).parents[2] / "data" / "conformance"
# Of a specification, what `spec_text` leaves out.
LEFT_OUT: Final = ("volumes", "resource_claims", "termination_grace_period_seconds")


def _pods(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        else:
            for member in value.values():
                yield from _pods(member)
    elif isinstance(value, list):
        for member in value:
            yield from _pods(member)


def _stripped(pod: Pod) -> Pod:
    """Another pod with the same `spec_text`: all that it leaves out is as it is by default."""
    spec = msgspec.structs.replace(
        pod.manifest.spec, **{name: getattr(PodSpec(), name) for name in LEFT_OUT}
    )
    meta = ObjectMeta(name="another", namespace="elsewhere", uid="another")
    return Pod.from_manifest(PodManifest(meta, spec, PodStatus()))


@pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.jsonl")), ids=lambda path: path.stem)
def test_they_are_found_by_the_text_alone(path: Path) -> None:
    fields = {name: field for name, field in POD_FIELDS.items() if field.is_spec}
    facts = Snapshot(ObjectStore())
    compared = 0
    for line in path.read_bytes().splitlines()[:400]:
        for manifest in _pods(msgspec.json.decode(line)):
            pod = Pod.from_plain(manifest)
            other = _stripped(pod)
            assert spec_text(pod) == spec_text(other)
            for name, field in fields.items():
                assert field.extract(pod, facts) == field.extract(other, facts), name
            compared += 1
    assert compared


@pytest.mark.parametrize("name", [n for n in PodSpec.__struct_fields__ if n not in LEFT_OUT])
def test_nothing_else_of_a_specification_is_left_out(name: str) -> None:
    pod = Pod.from_plain({"metadata": {"name": "p"}, "spec": {"containers": []}})
    answer = msgspec.structs.replace(pod.manifest.spec, **{name: "something"})
    manifest = msgspec.structs.replace(pod.manifest, spec=answer)
    changed = Pod.from_manifest(pod.manifest)
    changed.manifest = manifest
    assert spec_text(changed) != spec_text(pod)
