"""What the chart renders: kustomize's objects by default, and what each value changes."""

import base64
import copy
import dataclasses
import json
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from engine.policy.bundle import Bundle, build_bundle
from engine.policy.config import KubeSchedulerConfiguration, decode_documents
from engine.policy.shipped import PACKS
from engine.surfaces.cli.preflight_command import preflight_command
from engine.surfaces.cli.run_command import read_admission_key
from tests.deploy.chart import CHART, given, refusal, render_chart, run_helm
from tests.deploy.rendering import DEPLOY, ROOT, Manifest, container, pick, policies, render
from tests.scripts import script
from workbench.cli.main import main

VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())

#: Labels that kustomize's objects lack, or some of them: they say which release an object is of.
_OF_THE_RELEASE = (
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
)
#: Everything that is off by default.
OPTIONS: dict[str, Any] = {
    "namespace": {"create": True},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
}

needs_helm = pytest.mark.usefixtures("helm")


# --- the same as kustomize's ---------------------------------------------------------------------


def by_name(objects: list[Manifest]) -> dict[tuple[str, str, str], Manifest]:
    """*objects* by kind, namespace and name."""
    found = {
        (o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]): o for o in objects
    }
    assert len(found) == len(objects)
    return found


def without_release(value: Any) -> Any:
    """*value* without the labels of a release."""
    if isinstance(value, dict):
        return {k: without_release(v) for k, v in value.items() if k not in _OF_THE_RELEASE}
    if isinstance(value, list):
        return [without_release(v) for v in value]
    return value


def with_parsed_profile(manifest: Manifest) -> Manifest:
    """*manifest* with the text of its configuration as what it says: comments may differ."""
    copied = copy.deepcopy(manifest)
    if "profile.yaml" in copied.get("data", {}):
        copied["data"]["profile.yaml"] = yaml.safe_load(copied["data"]["profile.yaml"])
    return copied


@needs_helm
@pytest.mark.parametrize("mode", ["beside", "replace"])
@pytest.mark.usefixtures("kustomize")
def test_the_objects_are_those_of_kustomize(mode: str, tmp_path: Path) -> None:
    components = [os.path.relpath(DEPLOY / name, tmp_path) for name in ("monitoring", "webhook")]
    lines = (
        f"resources: [{os.path.relpath(DEPLOY / 'overlays' / mode, tmp_path)}]",
        f"components: [{', '.join(components)}]",
    )
    (tmp_path / "kustomization.yaml").write_text("\n".join(lines))
    # The job has the name that the component gives it, in both modes.
    options = {
        **OPTIONS,
        "podMonitor": {"enabled": True, "jobName": "starsched"},
        "webhook": {"enabled": True, "selfMade": True},
    }
    got = by_name(render_chart({"mode": mode, **options}))
    want = by_name(render(str(tmp_path)))
    # Of a release it is the namespace of others' things as well: helm must not delete it.
    assert got["Namespace", "", "starsched"]["metadata"].pop("annotations")
    # Kustomize has no word for it.
    policies_of_chart = got["ConfigMap", "starsched", "starsched-policies"]
    files = policies_of_chart["metadata"].pop("annotations")["starsched.dev/files"]
    assert files.split() == sorted(policies_of_chart["data"])
    assert got.keys() == want.keys()
    for key, manifest in want.items():
        ours = with_parsed_profile(without_release(got[key]))
        assert ours == with_parsed_profile(without_release(manifest)), key


@needs_helm
@pytest.mark.parametrize(
    "values",
    [{}, {"mode": "replace", **OPTIONS}, {"mode": "static-pod"}],
    ids=["beside", "replace", "static-pod"],
)
def test_helm_lint_finds_nothing(values: dict[str, Any]) -> None:
    result = run_helm("lint", "--strict", CHART, *given(values))
    assert result.returncode == 0, result.stdout
    assert "1 chart(s) linted, 0 chart(s) failed" in result.stdout + result.stderr
    assert not re.search(r"\[(WARNING|ERROR)\]", result.stdout + result.stderr)


def test_what_the_chart_copies_is_up_to_date() -> None:
    chart = script("devkit/tools/chart.py")
    written = chart.texts()
    stale = [
        str(path.relative_to(ROOT))
        for path, text in written.items()
        if not path.is_file() or path.read_text() != text
    ]
    assert stale == [], "run `make chart`"
    assert chart.leftovers(written) == [], "run `make chart`"


def test_every_value_is_documented_and_has_a_default_and_a_type() -> None:
    documented = {
        path
        for _, path, _, _ in script("devkit/tools/chart.py").documented(
            (CHART / "values.yaml").read_text()
        )
    }
    assert documented == set(leaves(VALUES, SCHEMA))
    assert set(leaves(VALUES, SCHEMA)) == set(typed(SCHEMA))


def leaves(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of *values* down to what an operator gives as one."""
    for key, value in values.items():
        inner = schema["properties"].get(key, {})
        if is_group(inner, value):
            yield from leaves(value, inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def typed(schema: dict[str, Any], values: Any = VALUES, prefix: str = "") -> Iterator[str]:
    """The paths that *schema* knows, as `leaves` has them."""
    for key, inner in schema["properties"].items():
        if prefix + key == "global":  # helm's own
            continue
        default = values.get(key)
        if is_group(inner, default):
            yield from typed(inner, default, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def is_group(schema: dict[str, Any], value: Any) -> bool:
    """True for an object whose members are values of their own."""
    members = set(schema.get("properties", ()))
    return bool(isinstance(value, dict) and value and members == value.keys())


def test_the_schema_knows_the_fields_that_the_scheduler_reads() -> None:
    def camel(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(part.title() for part in rest)

    fields = {camel(field.name) for field in dataclasses.fields(KubeSchedulerConfiguration)}
    properties = SCHEMA["properties"]["configuration"]["properties"]
    assert properties.keys() - {"apiVersion", "kind"} == fields - {"file", "text"}
    # Of the other document, whose fields have other names in the program: none is unknown to it.
    known = SCHEMA["properties"]["policyRuntime"]["properties"].keys() - {"apiVersion", "kind"}
    runtime = {"apiVersion": "starsched.dev/v1", "kind": "PolicyRuntime"}
    assert (
        decode_documents({"x.yaml": json.dumps(runtime | {key: {} for key in known})}).problems
        == ()
    )
    problems = decode_documents({"x.yaml": json.dumps(runtime | {"unknown": {}})}).problems
    (message,) = [problem.hint + problem.message for problem in problems]
    assert "unknown" in message


# --- names ---------------------------------------------------------------------------------------


@needs_helm
def test_releases_of_one_cluster_share_no_object_and_no_lease() -> None:
    options = {"podMonitor": {"enabled": True}}
    releases = [
        render_chart(options, release=release, namespace=namespace)
        for release, namespace in (
            ("starsched", "starsched"),
            ("starsched", "batch"),
            ("gpu", "starsched"),
            ("batch", "batch"),
        )
    ]
    names = [key for objects in releases for key in by_name(objects)]
    assert len(names) == len(set(names))
    leases = [lease_of(objects) for objects in releases]
    assert len(leases) == len(set(leases))
    for objects in releases:
        for other in releases:
            labels = pick(other, "Deployment")["spec"]["template"]["metadata"]["labels"]
            in_one_place = namespace_of(objects) == namespace_of(other)
            selected = selector_of(objects).items() <= labels.items()
            assert (in_one_place and selected) == (objects is other)


def namespace_of(objects: list[Manifest]) -> str:
    namespace: str = pick(objects, "Deployment")["metadata"]["namespace"]
    return namespace


def selector_of(objects: list[Manifest]) -> dict[str, str]:
    """The one selector that everything which selects the pods has."""
    selectors = [
        pick(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        pick(objects, "Service")["spec"]["selector"],
        pick(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        pick(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
        pick(objects, "PodMonitor")["spec"]["selector"]["matchLabels"],
    ]
    assert all(one == selectors[0] for one in selectors)
    found: dict[str, str] = selectors[0]
    return found


def lease_of(objects: list[Manifest]) -> tuple[str, str]:
    """Namespace and name of the lease that the arguments ask for."""
    given = dict(one.split("=", 1) for one in container(objects)["args"] if "=" in one)
    name = given.get("--leader-elect-resource-name", "starsched")
    return given["--leader-elect-resource-namespace"], name


def lease_rights(objects: list[Manifest]) -> list[tuple[str, Any, list[str]]]:
    """Namespace, names and verbs of each rule about leases that the account is bound to."""
    bound = {
        (one["metadata"]["namespace"], one["roleRef"]["name"])
        for one in objects
        if one["kind"] == "RoleBinding"
    }
    return [
        (role["metadata"]["namespace"], rule.get("resourceNames"), sorted(rule["verbs"]))
        for role in objects
        if role["kind"] == "Role"
        and (role["metadata"]["namespace"], role["metadata"]["name"]) in bound
        for rule in role["rules"]
        if "leases" in rule["resources"]
    ]


@needs_helm
@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param({}, ("team", "batch-starsched"), id="of the release"),
        pytest.param(
            {"leaderElection": {"name": "mine", "namespace": ""}}, ("team", "mine"), id="own name"
        ),
        pytest.param(
            {"leaderElection": {"name": "mine", "namespace": "leases"}},
            ("leases", "mine"),
            id="elsewhere",
        ),
        pytest.param({"mode": "replace"}, ("kube-system", "kube-scheduler"), id="replace"),
    ],
)
def test_the_lease_that_is_asked_for_is_the_one_allowed(
    values: dict[str, Any], want: tuple[str, str]
) -> None:
    objects = render_chart(values, release="batch", namespace="team")
    assert lease_of(objects) == want
    namespace, name = want
    assert lease_rights(objects) == [
        (namespace, None, ["create"]),
        (namespace, [name], ["get", "update"]),
    ]


@needs_helm
@pytest.mark.parametrize("release", ["starsched", "batch"])
def test_the_rights_name_the_config_maps_of_the_release(release: str) -> None:
    objects = render_chart({"mode": "replace"}, release=release, namespace="team")
    args = container(objects)["args"]
    (watched,) = (one.rpartition("/")[2] for one in args if one.startswith("--policies="))
    made = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    assert made == {watched, *(f"{watched}-{name}" for name in ("last-good", "facts", "rollout"))}
    named = {
        name
        for role in objects
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        if "configmaps" in rule.get("resources", ())
        for name in rule["resourceNames"]
    }
    assert named == made


@needs_helm
def test_an_account_that_is_there_is_bound_and_used() -> None:
    account = {"create": False, "name": "robot"}
    objects = render_chart({"serviceAccount": account})
    assert [one for one in objects if one["kind"] == "ServiceAccount"] == []
    pod = pick(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == "robot"
    subjects = [one["subjects"] for one in objects if one["kind"].endswith("RoleBinding")]
    assert len(subjects) == 3
    robot = {"kind": "ServiceAccount", "name": "robot", "namespace": "starsched"}
    assert all(one == [robot] for one in subjects)


@needs_helm
def test_names_that_look_like_numbers_stay_names() -> None:
    values = {"fullnameOverride": "1e3", **OPTIONS, "podMonitor": {"enabled": True, "jobName": "7"}}
    for manifest in render_chart(values, release="0.5", namespace="12"):
        assert isinstance(manifest["metadata"]["name"], str)
        assert manifest["metadata"].get("namespace", "12") in ("12", "kube-system")
        for subject in manifest.get("subjects", ()):
            assert (subject["name"], subject["namespace"]) in {("1e3", "12"), ("1e3-metrics", "12")}


# --- policies ------------------------------------------------------------------------------------


def bundle_of(values: dict[str, Any]) -> Bundle:
    """The policies of a release as the scheduler reads them."""
    return build_bundle(policies(render_chart(values))["data"])


def configuration_of(values: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(policies(render_chart(values))["data"]["profile.yaml"])
    return found


def enabled(bundle: Bundle) -> set[str]:
    """The policies that some profile runs."""
    return {instance.policy for instance in bundle.program.instances}


@needs_helm
@pytest.mark.parametrize("pack", sorted(PACKS))
def test_every_pack_can_be_named(pack: str) -> None:
    bundle = bundle_of({"packs": [pack]})
    assert [profile.scheduler_name for profile in bundle.profiles] == ["starsched"]
    assert enabled(bundle) & set(PACKS[pack])
    assert [one for one in bundle.warnings if "no source" in one.message] == []


@needs_helm
def test_packs_add_up() -> None:
    """Plugins, what they switch off, and where facts come from."""
    values = {"packs": ["gpu", "trimaran", "pigeon"], "mode": "replace"}
    bundle = bundle_of(values)
    assert [profile.scheduler_name for profile in bundle.profiles] == ["default-scheduler"]
    assert {"FGDScore", "GpuShare", "TargetLoadPacking", "Pigeon"} <= enabled(bundle)
    (profile,) = configuration_of(values)["profiles"]
    spreading = [{"name": "NodeResourcesFit"}, {"name": "NodeResourcesBalancedAllocation"}]
    assert profile["plugins"]["score"] == {"disabled": spreading}
    assert len(bundle.runtime.facts.sources) == 2


@needs_helm
def test_what_a_profile_says_itself_wins_over_a_pack() -> None:
    profile = {
        "schedulerName": "gpu",
        "plugins": {"multiPoint": {"enabled": [{"name": "FGDScore", "weight": 7}]}},
        "pluginConfig": [{"name": "TargetLoadPacking", "args": {"targetUtilization": 11}}],
    }
    values = {
        "packs": ["gpu", "trimaran"],
        "configuration": {"profiles": [profile, {"schedulerName": "other"}]},
        "policyRuntime": {"limits": {"steps": 1_000_000}},
    }
    first, second = configuration_of(values)["profiles"]
    points = first["plugins"]["multiPoint"]["enabled"]
    assert [(one["name"], one.get("weight")) for one in points] == [
        ("FGDScore", 7),
        ("GpuShare", None),
        ("TargetLoadPacking", 3),
        ("LoadVariationRiskBalancing", None),
    ]
    (target,) = (one for one in first["pluginConfig"] if one["name"] == "TargetLoadPacking")
    assert target["args"] == {"targetUtilization": 11}
    assert second["plugins"]["multiPoint"]["enabled"][0] == {"name": "FGDScore", "weight": 100}
    data = policies(render_chart(values))["data"]
    assert yaml.safe_load(data["runtime.yaml"]) == {
        "apiVersion": "starsched.dev/v1",
        "kind": "PolicyRuntime",
        "limits": {"steps": 1_000_000},
    }


_POLICY = '"""Likes no node."""\n\ndef filter(pod, node):\n    return "no"\n'


@needs_helm
def test_policies_from_files_are_enabled_and_can_take_the_place_of_a_plugin() -> None:
    files = {"picky.star": _POLICY, "node_name.star": _POLICY, "picky_test.star": '"""x"""\n'}
    bundle = bundle_of({"policyFiles": files})
    assert [profile.scheduler_name for profile in bundle.profiles] == ["starsched"]
    assert {"picky", "NodeName"} <= enabled(bundle)
    assert {"keep_off_maintenance", "picky_test"} & set(bundle.policies) == set()
    assert bundle.tests == ("picky_test.star",)


@needs_helm
def test_values_can_be_given_as_the_readme_gives_them(tmp_path: Path) -> None:
    """By `--set`, by `--set-file`, and in a file of values."""
    readme = (CHART / "README.md").read_text()
    (packs,) = re.findall(r"`--set '(packs=.*?)'`", readme)
    (file,) = re.findall(r"`--set-file '(policyFiles\..*?=).*?'`, for", readme)
    (values,) = re.findall(r"```yaml\n(.*?)```", readme, re.S)
    (tmp_path / "my_policy.star").write_text(_POLICY)
    (tmp_path / "values.yaml").write_text(textwrap.dedent(values))
    by_file = ("--set", packs, "--set-file", f"{file}{tmp_path / 'my_policy.star'}")
    result = run_helm("template", "x", CHART, *by_file, "-f", tmp_path / "values.yaml")
    assert result.returncode == 0, result.stderr
    objects = [one for one in yaml.safe_load_all(result.stdout) if one is not None]
    bundle = build_bundle(pick(objects, "ConfigMap", "x-starsched-policies")["data"])
    assert [profile.scheduler_name for profile in bundle.profiles] == ["batch"]
    assert {"my_policy", "FGDScore", "TargetLoadPacking"} <= enabled(bundle)
    assert bundle.runtime.limits.deadline == 0.5


@needs_helm
def test_a_file_can_be_the_whole_configuration() -> None:
    text = (ROOT / "deploy/examples/trimaran/profile.yaml").read_text()
    data = policies(render_chart({"policyFiles": {"trimaran.yaml": text}}))["data"]
    assert data == {"trimaran.yaml": text}


@needs_helm
def test_a_whole_configuration_arrives_as_it_is() -> None:
    configuration = {
        "parallelism": 32,
        "percentageOfNodesToScore": 100,
        "podMaxBackoffSeconds": 12_345_678,
        "clientConnection": {"qps": 100.5, "burst": 2_000_000},
        "leaderElection": {"leaseDuration": "30s", "renewDeadline": "20s"},
        "profiles": [
            {
                "schedulerName": "a",
                "pluginConfig": [
                    {
                        "name": "NodeResourcesFit",
                        "args": {"scoringStrategy": {"type": "MostAllocated"}},
                    }
                ],
            },
            {"schedulerName": "b", "plugins": {"score": {"disabled": [{"name": "*"}]}}},
        ],
        "extenders": [{"urlPrefix": "http://extender.team:80", "filterVerb": "filter"}],
    }
    got = configuration_of({"configuration": configuration})
    want = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    assert got == want | configuration
    assert [one.scheduler_name for one in bundle_of({"configuration": configuration}).profiles] == [
        "a",
        "b",
    ]


@needs_helm
def test_a_config_map_that_is_there_is_followed_and_not_made() -> None:
    objects = render_chart({"existingConfigMap": "ours"})
    assert "--policies=configmap:starsched/ours" in container(objects)["args"]
    made = {one["metadata"]["name"] for one in objects if one["kind"] == "ConfigMap"}
    assert made == {"ours-last-good", "ours-facts", "ours-rollout"}


@needs_helm
def test_a_scheduler_name_of_ones_own_is_that_of_the_profile() -> None:
    for values in ({}, {"packs": ["gpu"]}, {"configuration": {"parallelism": 4}}):
        profiles = configuration_of({**values, "schedulerName": "team-b"})["profiles"]
        assert [one["schedulerName"] for one in profiles] == ["team-b"]


# --- pods and options ----------------------------------------------------------------------------


@needs_helm
def test_what_is_given_for_the_pods_is_in_their_template() -> None:
    digest = "sha256:" + "0" * 64
    values = {
        "replicas": 3,
        "image": {"repository": "registry.example/starsched", "digest": digest},
        "imagePullSecrets": [{"name": "registry"}],
        "extraArgs": ["--v=2", "--tls-cert-file=/tls/tls.crt"],
        "extraEnv": [{"name": "A", "value": "1"}],
        "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls"}],
        "securePort": 1111,
        "localPort": 0,
        "nodeSelector": {"pool": "system"},
        "tolerations": [],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 2}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "priorityClassName": "",
        "podDisruptionBudget": {"minAvailable": 2},
        "networkPolicy": {"from": [{"podSelector": {}}]},
    }
    objects = render_chart(values)
    deployment = pick(objects, "Deployment")["spec"]
    running, pod = container(objects), deployment["template"]["spec"]
    assert deployment["replicas"] == 3
    assert running["image"] == f"registry.example/starsched@{digest}"
    assert pod["imagePullSecrets"] == values["imagePullSecrets"]
    assert running["args"][-3:] == ["--secure-port=1111", *values["extraArgs"]]  # type: ignore[misc]
    assert running["env"] == values["extraEnv"]
    assert pod["volumes"][1:] == values["extraVolumes"]
    assert running["volumeMounts"][1:] == values["extraVolumeMounts"]
    assert running["ports"] == [{"name": "https", "containerPort": 1111}]
    assert pick(objects, "Service")["spec"]["ports"][0]["port"] == 1111
    assert pod["nodeSelector"] == {"pool": "system"}
    assert {"tolerations", "priorityClassName"} & pod.keys() == set()
    assert pod["affinity"] == {"nodeAffinity": {}}
    assert pod["topologySpreadConstraints"] == [{"maxSkew": 2}]
    metadata = deployment["template"]["metadata"]
    assert metadata["annotations"]["a"] == "b"
    assert metadata["labels"]["c"] == "d"
    assert "c" not in deployment["selector"]["matchLabels"]
    assert pick(objects, "PodDisruptionBudget")["spec"]["minAvailable"] == 2
    assert pick(objects, "NetworkPolicy")["spec"]["ingress"][0]["from"] == [{"podSelector": {}}]


@needs_helm
@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"podDisruptionBudget": {"enabled": False}}, {"PodDisruptionBudget"}),
        ({"networkPolicy": {"enabled": False}}, {"NetworkPolicy"}),
        ({"serviceAccount": {"create": False, "name": "x"}}, {"ServiceAccount"}),
        (
            {"rbac": {"create": False}},
            {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"},
        ),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_objects_can_be_switched_off(values: dict[str, Any], gone: set[str]) -> None:
    before, after = (by_name(render_chart(one)) for one in ({}, values))
    assert {kind for kind, _, _ in before.keys() - after.keys()} == gone
    assert gone & {kind for kind, _, _ in after} == set()


@needs_helm
def test_preflight_is_run_as_the_scheduler_would_run() -> None:
    """Before each start, and as a test of helm if that is asked for, without rights of its own."""
    assert not [one for one in render_chart() if one["kind"] == "Pod"]
    values = {"preflight": {"enabled": True}, "extraArgs": ["--preflight", "-v=2"]}
    objects = render_chart(values)
    pod = pick(objects, "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    template = pick(objects, "Deployment")["spec"]["template"]
    assert pod["spec"]["serviceAccountName"] == template["spec"]["serviceAccountName"]
    of_pod, of_scheduler = pod["spec"]["containers"][0], template["spec"]["containers"][0]
    assert of_pod["args"] == ["preflight", *of_scheduler["args"][1:]]
    (first,) = template["spec"]["initContainers"]
    assert first["args"] == ["preflight", "--at-start", *of_scheduler["args"][1:]]
    for word in ("image", "securityContext", "resources", "volumeMounts"):
        assert of_pod[word] == first[word] == of_scheduler[word]
    assert pod["spec"]["volumes"] == template["spec"]["volumes"]
    selector = pick(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= pod["metadata"]["labels"].items()
    # Each flag of the scheduler is one of preflight.
    with main.make_context("starsched", ["preflight"]) as group:
        for one in (of_pod, first):
            preflight_command.make_context("preflight", one["args"][1:], parent=group)
    without = render_chart({"preflight": {"initContainer": False}})
    assert "initContainers" not in pick(without, "Deployment")["spec"]["template"]["spec"]


@needs_helm
def test_metrics_are_read_by_an_account_that_may() -> None:
    objects = render_chart(OPTIONS, release="batch", namespace="team")
    binding = pick(objects, "ClusterRoleBinding", "team-batch-starsched-metrics")
    role = pick(objects, "ClusterRole", binding["roleRef"]["name"])
    (subject,) = binding["subjects"]
    secret = pick(objects, "Secret")
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert (subject["namespace"], subject["name"]) == ("team", account)
    pick(objects, "ServiceAccount", account)
    (endpoint,) = pick(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["authorization"]["credentials"]["name"] == secret["metadata"]["name"]
    assert endpoint["path"] in {path for rule in role["rules"] for path in rule["nonResourceURLs"]}


@needs_helm
@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({}, "batch-starsched"),
        ({"mode": "replace"}, "kube-scheduler"),
        ({"podMonitor": {"jobName": "mine"}}, "mine"),
    ],
    ids=["beside", "replace", "given"],
)
def test_the_job_is_named_after_what_it_stands_for(values: dict[str, Any], want: str) -> None:
    monitor = {"podMonitor": {"enabled": True, **values.get("podMonitor", {})}}
    objects = render_chart({**values, **monitor}, release="batch")
    (endpoint,) = pick(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": want}]


@needs_helm
def test_what_watches_it_can_be_labelled_for_who_selects_it() -> None:
    labelled = {"enabled": True, "labels": {"team": "a"}}
    names = {
        "podMonitor": "PodMonitor",
        "prometheusRule": "PrometheusRule",
        "dashboards": "ConfigMap",
    }
    objects = render_chart(dict.fromkeys(names, labelled))
    for kind in ("PodMonitor", "PrometheusRule"):
        assert pick(objects, kind)["metadata"]["labels"]["team"] == "a"
    dashboards = pick(objects, "ConfigMap", "starsched-dashboards")
    assert dashboards["metadata"]["labels"]["team"] == "a"


@needs_helm
def test_a_packaged_chart_renders_the_same(tmp_path: Path) -> None:
    result = run_helm("package", CHART, "-d", tmp_path)
    assert result.returncode == 0, result.stderr
    (archive,) = tmp_path.glob("*.tgz")
    texts = [
        run_helm("template", "x", chart, *given({"packs": ["gpu"], **OPTIONS})).stdout
        for chart in (CHART, archive)
    ]
    assert texts[0] == texts[1] != ""


@needs_helm
def test_what_is_left_empty_is_left_out() -> None:
    """As in a file with `configuration:` and nothing after it, and to get rid of a default."""
    empty = ("configuration", "policyFiles", "policyRuntime", "packs", "tolerations", "affinity")
    security = {"podSecurityContext": {"fsGroup": None, "runAsUser": None}, "resources": None}
    objects = render_chart({**dict.fromkeys(empty), **security})
    pod = pick(objects, "Deployment")["spec"]["template"]["spec"]
    assert {"fsGroup", "runAsUser"} & pod["securityContext"].keys() == set()
    assert "tolerations" not in pod
    assert "resources" not in container(objects)
    assert policies(objects) == policies(render_chart())


@needs_helm
@pytest.mark.parametrize(
    ("release", "values", "want"),
    [
        ("starsched", {}, "starsched queue -A\n"),
        ("b", {"localPort": 11}, "queue -A --lease starsched/b-starsched --leader-port 11\n"),
        ("b", {"localPort": None}, "kubectl starsched ui --lease starsched/b-starsched\n"),
        ("b", {"schedulerName": "mine"}, "\n  schedulerName: mine\n"),
        ("b", {"existingConfigMap": "ours"}, "-n starsched edit configmap ours\n"),
        ("b", {"mode": "replace"}, "the lease kube-system/kube-scheduler says"),
        ("b", {"mode": "replace"}, "starsched queue -A\n"),
        (
            "b",
            {"leaderElection": {"name": "mine", "namespace": "leases"}},
            "queue -A --lease leases/mine --leader-namespace starsched\n",
        ),
    ],
    ids=[
        "default",
        "another",
        "secure",
        "named",
        "existing",
        "replace",
        "asked in its place",
        "elsewhere",
    ],
)
def test_the_notes_say_how_to_go_on(release: str, values: dict[str, Any], want: str) -> None:
    dry = ("--dry-run=client", "-n", "starsched")
    result = run_helm("install", release, CHART, *dry, *given(values))
    assert result.returncode == 0, result.stderr
    assert want in result.stdout.partition("NOTES:")[2]


# --- what is refused -----------------------------------------------------------------------------

_CONFIGURATION = (ROOT / "deploy/examples/gpu/profile.yaml").read_text()
_RUNTIME = "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n"


@needs_helm
@pytest.mark.parametrize(
    ("values", "wants"),
    [
        pytest.param(
            {
                "existingConfigMap": "ours",
                "packs": ["gpu"],
                "policyFiles": {"a.star": _POLICY},
                "configuration": {"parallelism": 3},
                "policyRuntime": {"limits": {}},
                "schedulerName": "x",
            },
            [
                f"{path}: want none with `existingConfigMap`"
                for path in (
                    *("packs", "policyFiles", "configuration", "policyRuntime", "schedulerName"),
                )
            ],
            id="a ConfigMap and what would be in it",
        ),
        pytest.param(
            {
                "policyFiles": {"gpu.yaml": _CONFIGURATION},
                "packs": ["gpu"],
                "configuration": {"parallelism": 3},
                "schedulerName": "x",
            },
            [
                f'{path}: want none with a KubeSchedulerConfiguration in policyFiles["gpu.yaml"]'
                for path in ("packs", "configuration", "schedulerName")
            ],
            id="two configurations",
        ),
        pytest.param(
            {"policyFiles": {"limits.yaml": _RUNTIME}, "policyRuntime": {"limits": {}}},
            ['policyFiles["limits.yaml"]: want no PolicyRuntime with `policyRuntime`'],
            id="two runtimes",
        ),
        pytest.param(
            {"policyFiles": {"profile.yaml": "a: b"}},
            ['policyFiles["profile.yaml"]: the chart writes a file of this name itself'],
            id="a name that is taken",
        ),
        pytest.param(
            {"policyFiles": {"a.yaml": "a: {", "b.json": "[]", "c_test.yaml": "kind: x"}},
            ['policyFiles["a.yaml"]: error converting YAML', 'policyFiles["b.json"]: '],
            id="no YAML",
        ),
        pytest.param(
            {"packs": ["gpu", "gpus"]},
            ["packs[1]: no pack `gpus`, want one of congestion, coscheduling, gpu, "],
            id="no such pack",
        ),
        pytest.param(
            {"configuration": {"profiles": [{"schedulerName": "a"}]}, "schedulerName": "b"},
            ["schedulerName: want none with `configuration.profiles`"],
            id="two names",
        ),
        pytest.param(
            {"configuration": {"profiles": [{"schedulerName": "a"}, {}]}},
            ["configuration.profiles[1].schedulerName: want a name"],
            id="no name",
        ),
        pytest.param(
            {
                "configuration": {
                    "leaderElection": {
                        "resourceName": "a",
                        "leaderElect": False,
                        "resourceNamespace": "b",
                    }
                }
            },
            [
                "configuration.leaderElection.resourceName: want none, the chart sets it by "
                "`leaderElection.name`",
                "configuration.leaderElection.leaderElect: want none",
                "configuration.leaderElection.resourceNamespace: want none",
            ],
            id="two leases",
        ),
        pytest.param(
            {"mode": "replace", "leaderElection": {"name": "mine", "namespace": "team"}},
            [
                "leaderElection.name: want none with mode `replace`",
                "leaderElection.namespace: want none with mode `replace`",
            ],
            id="a lease of its own in kube-scheduler's place",
        ),
        pytest.param(
            {"leaderElection": {"name": "kube-scheduler", "namespace": "kube-system"}},
            ["leaderElection.name: this is kube-scheduler's lease"],
            id="kube-scheduler's lease next to it",
        ),
        pytest.param(
            {"schedulerName": "default-scheduler"},
            ["schedulerName: `default-scheduler` is kube-scheduler's"],
            id="kube-scheduler's pods next to it",
        ),
        pytest.param(
            {"configuration": {"profiles": [{"schedulerName": "default-scheduler"}]}},
            ["configuration.profiles: `default-scheduler` is kube-scheduler's"],
            id="kube-scheduler's pods by a profile",
        ),
        pytest.param(
            {"mode": "replace", "policyFiles": {"gpu.yaml": _CONFIGURATION}},
            ['policyFiles["gpu.yaml"]: mode `replace` wants a profile `default-scheduler`'],
            id="not kube-scheduler's pods in its place",
        ),
        pytest.param(
            {"replicas": 1},
            ["podDisruptionBudget.minAvailable: want less than `replicas`, which is 1"],
            id="a drain that never ends",
        ),
        pytest.param(
            {"serviceAccount": {"create": False}},
            ["serviceAccount.name: want the name of an account"],
            id="no account",
        ),
        pytest.param(
            {"localPort": 10259}, ["localPort: want another port than `securePort`"], id="one port"
        ),
        pytest.param(
            {
                "mode": "static-pod",
                **{key: {"enabled": True} for key in ("podMonitor", "webhook", "preflight")},
            },
            [
                f"{option}.enabled: want none with mode `static-pod`"
                for option in ("podMonitor", "webhook", "preflight")
            ],
            id="what is about pods that the chart does not make",
        ),
        pytest.param(
            {"podMonitor": {"enabled": True}, "rbac": {"create": False}},
            ["podMonitor.enabled: want `rbac.create` too"],
            id="metrics that nobody may read",
        ),
        pytest.param(
            {"replicas": 1, "packs": ["x"], "localPort": 10259},
            ["packs[0]: no pack `x`", "localPort: want", "podDisruptionBudget.minAvailable: want"],
            id="all at once",
        ),
    ],
)
def test_values_that_contradict_each_other_are_refused_with_their_paths(
    values: dict[str, Any], wants: list[str]
) -> None:
    got = refusal(values)
    for want in wants:
        assert want in got


@needs_helm
@pytest.mark.parametrize(
    ("values", "want"),
    [
        ({"replica": 2}, "at '': additional properties 'replica' not allowed"),
        ({"image": {"name": "x"}}, "at '/image': additional properties 'name' not allowed"),
        ({"mode": "instead"}, "at '/mode'"),
        ({"replicas": "2"}, "at '/replicas': got string, want"),
        ({"packs": "gpu"}, "at '/packs': got string, want array"),
        ({"extraArgs": ["--v=2", "--policies=builtin"]}, "at '/extraArgs/1'"),
        ({"extraArgs": ["--leader-elect-resource-name=x"]}, "at '/extraArgs/0'"),
        ({"policyFiles": {"a.txt": ""}}, "at '/policyFiles'"),
        ({"policyFiles": {"../a.star": ""}}, "at '/policyFiles'"),
        ({"policyFiles": {"a.yaml": {"kind": "x"}}}, "at '/policyFiles/a.yaml'"),
        (
            {"configuration": {"profile": []}},
            "at '/configuration': additional properties 'profile'",
        ),
        ({"configuration": {"apiVersion": "v1"}}, "at '/configuration/apiVersion'"),
        (
            {"configuration": {"profiles": [{"plugins": {"scores": {}}}]}},
            "at '/configuration/profiles/0/plugins'",
        ),
        (
            {"configuration": {"profiles": [{"plugins": {"score": {"enabled": [{"nam": "x"}]}}}]}},
            "at '/configuration/profiles/0/plugins/score/enabled/0'",
        ),
        ({"policyRuntime": {"limit": {}}}, "at '/policyRuntime': additional properties 'limit'"),
        ({"podMonitor": {"enabled": "yes"}}, "at '/podMonitor/enabled': got string, want boolean"),
        ({"existingConfigMap": "team/policies"}, "at '/existingConfigMap'"),
        ({"image": {"digest": "abc"}}, "at '/image/digest'"),
        ({"image": {"repository": None}}, "at '/image': missing property 'repository'"),
        ({"podMonitor": None}, "at '': missing property 'podMonitor'"),
    ],
    ids=lambda one: json.dumps(one) if isinstance(one, dict) else "",
)
def test_the_schema_refuses_what_it_does_not_know_with_its_path(
    values: dict[str, Any], want: str
) -> None:
    assert want in refusal(values)


# --- the webhook ---------------------------------------------------------------------------------


def hook_of(objects: list[Manifest]) -> dict[str, Any]:
    """The one webhook of a release."""
    (hook,) = pick(objects, "ValidatingWebhookConfiguration")["webhooks"]
    return dict(hook)


def named(objects: list[Manifest], kind: str, name: str) -> Manifest:
    """The object of a kind and a name."""
    (found,) = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    return found


@needs_helm
def test_the_webhook_calls_the_replicas_by_the_certificate_and_the_key_that_they_have() -> None:
    objects = render_chart({"webhook": {"enabled": True, "failurePolicy": "Fail"}})
    hook = hook_of(objects)
    assert (hook["failurePolicy"], hook["timeoutSeconds"]) == ("Fail", 10)
    called = hook["clientConfig"]
    tls = named(objects, "Secret", "starsched-webhook")["data"]
    secret = named(objects, "Secret", "starsched-webhook-key")["data"]
    key = base64.b64decode(secret["key"]).decode()
    assert called["caBundle"] == tls["ca.crt"]
    assert called["service"] == {
        "namespace": "starsched",
        "name": "starsched-webhook",
        "path": f"/admission/{key}",
        "port": 443,
    }
    assert read_admission_key_of(key) == key
    service = named(objects, "Service", "starsched-webhook")
    assert "clusterIP" not in service["spec"], "the API server calls no headless Service"
    certificate = x509.load_pem_x509_certificate(base64.b64decode(tls["tls.crt"]))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["starsched-webhook.starsched.svc"]
    # The files that the flags name are mounted from these Secrets, for the test of helm as well.
    mounted = {mount["name"]: mount["mountPath"] for mount in container(objects)["volumeMounts"]}
    flags = dict(a.split("=", 1) for a in container(objects)["args"] if "=" in a)
    for flag in ("--tls-cert-file", "--tls-private-key-file", "--admission-key-file"):
        assert str(Path(flags[flag]).parent) == mounted["webhook"]
    (volume,) = [
        one
        for one in pick(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
        if one["name"] == "webhook"
    ]
    sources = [source["secret"]["name"] for source in volume["projected"]["sources"]]
    assert sources == ["starsched-webhook", "starsched-webhook-key"]


def read_admission_key_of(key: str) -> str:
    """*key* as the scheduler reads it from a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "key"
        file.write_text(key)
        return read_admission_key(file, "configmap:a/b")


@needs_helm
def test_cert_manager_issues_the_certificate_if_it_is_to() -> None:
    objects = render_chart({"webhook": {"enabled": True, "certManager": {"enabled": True}}})
    hook = pick(objects, "ValidatingWebhookConfiguration")
    annotations = hook["metadata"]["annotations"]
    issued = "starsched/starsched-webhook"
    assert annotations["cert-manager.io/inject-ca-from"] == issued
    assert "caBundle" not in hook_of(objects)["clientConfig"]
    certificate = named(objects, "Certificate", "starsched-webhook")["spec"]
    assert certificate["secretName"] == "starsched-webhook"
    assert certificate["issuerRef"] == {"kind": "Issuer", "name": "starsched-webhook"}
    assert named(objects, "Issuer", "starsched-webhook")["spec"] == {"selfSigned": {}}
    issuer = {"kind": "ClusterIssuer", "name": "internal"}
    manager = {"enabled": True, "issuerRef": issuer}
    objects = render_chart({"webhook": {"enabled": True, "certManager": manager}})
    assert named(objects, "Certificate", "starsched-webhook")["spec"]["issuerRef"] == issuer
    assert "Issuer" not in {one["kind"] for one in objects}


@needs_helm
def test_a_scheduler_that_registers_itself_needs_no_secret_and_rights_to_one_object() -> None:
    values = {"webhook": {"enabled": True, "selfMade": True}, "preflight": {"enabled": True}}
    objects = render_chart(values, release="b", namespace="team")
    name = pick(objects, "ValidatingWebhookConfiguration")["metadata"]["name"]
    (role,) = [
        one
        for one in objects
        if one["kind"] == "ClusterRole" and one["metadata"]["name"] == f"{name}-webhook"
    ]
    (rule,) = role["rules"]
    assert (rule["resourceNames"], sorted(rule["verbs"])) == ([name], ["get", "patch"])
    template = pick(objects, "Deployment")["spec"]["template"]["spec"]
    for one in (*template["initContainers"], *template["containers"]):
        assert f"--admission-webhook={name}" in one["args"]
    assert "Secret" not in {one["kind"] for one in objects}
    assert [volume["name"] for volume in template["volumes"]] == ["state"]
    for key in ("certManager", "key"):
        more = {"enabled": True} if key == "certManager" else "0123456789abcdefghij"
        refused = refusal({"webhook": {**values["webhook"], key: more}})
        assert "webhook.selfMade: want none" in refused


@needs_helm
def test_a_certificate_of_ones_own_is_refused_beside_that_of_the_webhook() -> None:
    values = {"webhook": {"enabled": True}, "extraArgs": ["--tls-cert-file=/x"]}
    assert "extraArgs[0]: want none with `webhook.enabled`" in refusal(values)
    assert "key" in refusal({"webhook": {"enabled": True, "key": "SHORT"}})


@needs_helm
@pytest.mark.parametrize(
    ("certificate", "field"),
    [({"selfMade": True}, "selfMade"), ({"certManager": {"enabled": True}}, "certManager.enabled")],
)
def test_a_certificate_without_the_webhook_is_refused(
    certificate: dict[str, Any], field: str
) -> None:
    assert f"webhook.{field}: want `webhook.enabled` too" in refusal({"webhook": certificate})
