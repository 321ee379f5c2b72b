"""Admission: what LimitRanges add and refuse, and labels of a pod that its own selectors get."""

from collections.abc import Iterable
from typing import Any

import pytest

from engine.core.manifests import admission, defaults, kinds
from engine.core.manifests.errors import ApiStatus
from engine.core.manifests.kinds import Kind

Json = dict[str, Any]


class Objects:
    """A lookup of given objects."""

    def __init__(self, *given: tuple[Kind, Json]) -> None:
        for kind, manifest in given:
            defaults.set_defaults(kind, manifest)
        self._given = given

    def find(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        return next((one for one in self.every(kind) if one["metadata"]["name"] == name), None)

    def every(self, kind: Kind) -> Iterable[Json]:
        return [manifest for one, manifest in self._given if one is kind]


def limit_range(**item: Any) -> tuple[Kind, Json]:
    metadata = {"name": "limits", "namespace": "default"}
    spec = {"limits": [{"type": "Container", **item}]}
    return kinds.LIMIT_RANGES, {"metadata": metadata, "spec": spec}


def admitted(spec: Json, *objects: tuple[Kind, Json], labels: Json | None = None) -> Json:
    pod = {"metadata": {"name": "p", "namespace": "default", "labels": labels or {}}, "spec": spec}
    defaults.set_defaults(kinds.PODS, pod)
    admission.admit(kinds.PODS, pod, Objects(*objects))
    return pod


def container(**resources: Json) -> Json:
    return {"name": "a", "image": "i", "resources": resources}


def test_a_limit_range_gives_requests_and_limits() -> None:
    of = limit_range(default={"cpu": "500m"}, defaultRequest={"cpu": "0.1"}, max={"memory": "1Gi"})
    got = admitted({"containers": [container()]}, of)
    assert got["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "1Gi"},
        "limits": {"cpu": "500m", "memory": "1Gi"},
    }
    assert got["metadata"]["annotations"] == {
        "kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu, memory request for container "
        "a; cpu, memory limit for container a"
    }


@pytest.mark.parametrize(
    ("item", "resources", "want"),
    [
        pytest.param(
            {"min": {"cpu": "100m"}},
            {"requests": {"cpu": "50m"}},
            "minimum cpu usage per Container is 100m, but request is 50m",
            id="too little",
        ),
        pytest.param(
            {"max": {"cpu": "1"}},
            {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
            "maximum cpu usage per Container is 1, but limit is 2",
            id="too much",
        ),
        pytest.param(
            {"maxLimitRequestRatio": {"cpu": "2"}},
            {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
            id="too much more than requested",
        ),
    ],
)
def test_a_limit_range_refuses_what_is_out_of_bounds(
    item: Json, resources: Json, want: str
) -> None:
    with pytest.raises(ApiStatus) as refused:
        admitted({"containers": [container(**resources)]}, limit_range(**item))
    assert (refused.value.code, refused.value.message) == (403, f'pods "p" is forbidden: {want}')


def test_selectors_get_the_pods_own_values_of_label_keys() -> None:
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "x"}},
        "matchLabelKeys": ["hash", "absent"],
        "mismatchLabelKeys": ["tenant"],
    }
    empty = {"topologyKey": "zone", "matchLabelKeys": ["hash"]}
    hard = {"requiredDuringSchedulingIgnoredDuringExecution": [term, empty]}
    spread = {"topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["hash"]}
    spec = {
        "containers": [container()],
        "affinity": {"podAntiAffinity": hard},
        "topologySpreadConstraints": [spread],
    }
    got = admitted(spec, labels={"hash": "3", "tenant": "red"})["spec"]
    first, second = got["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    hash_3 = {"key": "hash", "operator": "In", "values": ["3"]}
    not_red = {"key": "tenant", "operator": "NotIn", "values": ["red"]}
    assert first["labelSelector"]["matchExpressions"] == [hash_3, not_red]
    assert "labelSelector" not in second
    assert got["topologySpreadConstraints"][0]["labelSelector"] == {"matchExpressions": [hash_3]}


def test_alternatives_of_a_device_request_get_their_mode_and_count() -> None:
    claim = {"spec": {"devices": {"requests": [{"name": "a", "firstAvailable": [{"name": "b"}]}]}}}
    defaults.set_defaults(kinds.RESOURCE_CLAIMS, claim)
    assert claim["spec"]["devices"]["requests"][0]["firstAvailable"] == [
        {"name": "b", "allocationMode": "ExactCount", "count": 1}
    ]


def test_a_pod_is_limited_where_each_of_its_containers_is() -> None:
    """Huge pages have the limit of the containers; what one does not limit has none."""
    limited = container(limits={"hugepages-2Mi": "2Mi", "memory": "64Mi"})
    first = {**container(limits={"memory": "128Mi"}, requests={"cpu": "1"}), "name": "b"}
    spec = {"containers": [limited], "initContainers": [first]}
    got = admitted({**spec, "resources": {"requests": {"memory": "256Mi"}}})["spec"]["resources"]
    assert got == {
        "requests": {"hugepages-2Mi": "2Mi", "memory": "256Mi", "cpu": "1"},
        "limits": {"hugepages-2Mi": "2Mi", "memory": "256Mi"},
    }


def test_a_pod_requests_what_a_limit_range_gives_its_containers() -> None:
    of = limit_range(defaultRequest={"cpu": "250m"})
    got = admitted({"containers": [container()], "resources": {"limits": {"cpu": "2"}}}, of)
    assert got["spec"]["resources"]["requests"] == {"cpu": "250m"}


def test_a_claim_gets_the_newest_default_class_and_the_first_by_name() -> None:
    def marked(name: str, made: str, domain: str = "storageclass") -> tuple[Kind, Json]:
        annotations = {f"{domain}.kubernetes.io/is-default-class": "true"}
        meta = {"name": name, "annotations": annotations, "creationTimestamp": made}
        return kinds.STORAGE_CLASSES, {"metadata": meta, "provisioner": "p"}

    def class_of(**metadata: Any) -> str | None:
        new, old = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"
        beta = "storageclass.beta"
        known = Objects(marked("c", new), marked("b", new, beta), marked("a", old))
        claim = {"metadata": {"name": "data", **metadata}, "spec": {}}
        admission.admit(kinds.PERSISTENT_VOLUME_CLAIMS, claim, known)
        found: str | None = claim["spec"].get("storageClassName")
        return found

    assert class_of() == "b"
    assert class_of(annotations={"volume.beta.kubernetes.io/storage-class": "own"}) is None
