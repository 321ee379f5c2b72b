"""The component for prometheus-operator fits the manifests that it is added to."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from devkit.tools import monitoring
from tests.deploy.chart import render_chart
from tests.deploy.rendering import DEPLOY, container, pick, render

pytestmark = pytest.mark.slow("renders with kustomize")


@pytest.fixture(scope="module", params=["overlays/beside", "overlays/replace"])
def objects(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, Any]]:
    """An overlay with the component, as an operator's kustomization has it."""
    folder = tmp_path_factory.mktemp("kustomization")
    lines = (
        f"resources: [{os.path.relpath(DEPLOY / request.param, folder)}]",
        f"components: [{os.path.relpath(DEPLOY / 'monitoring', folder)}]",
    )
    (folder / "kustomization.yaml").write_text("\n".join(lines))
    return render(str(folder))


def test_the_monitor_selects_the_pods_and_their_port(objects: list[dict[str, Any]]) -> None:
    spec = pick(objects, "PodMonitor")["spec"]
    template = pick(objects, "Deployment")["spec"]["template"]
    assert spec["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for port in container(objects)["ports"]}
    assert {one["port"] for one in spec["podMetricsEndpoints"]} <= ports


def test_the_monitor_reads_as_an_account_that_may_read_metrics(
    objects: list[dict[str, Any]],
) -> None:
    monitor = pick(objects, "PodMonitor")
    (token,) = {
        one["authorization"]["credentials"]["name"]
        for one in monitor["spec"]["podMetricsEndpoints"]
    }
    secret = pick(objects, "Secret", token)
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    assert pick(objects, "ServiceAccount", account)["metadata"]["namespace"] == "starsched"
    binding = pick(objects, "ClusterRoleBinding", account)
    assert [one["name"] for one in binding["subjects"]] == [account]
    role = pick(objects, "ClusterRole", binding["roleRef"]["name"])
    (rule,) = role["rules"]
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        assert endpoint["path"] in rule["nonResourceURLs"]
    # All are where the operator looks for the token: next to the monitor.
    assert {o["metadata"]["namespace"] for o in (monitor, secret)} == {"starsched"}


def test_the_chart_scrapes_in_the_same_way(objects: list[dict[str, Any]]) -> None:
    """A real API server that knows the kind has accepted the chart's."""
    values = {"mode": "beside", "podMonitor": {"enabled": True}}
    chart = render_chart(values, release="starsched", namespace="starsched")
    got, want = (pick(one, "PodMonitor")["spec"] for one in (objects, chart))
    assert got["podMetricsEndpoints"] == want["podMetricsEndpoints"]
    assert pick(objects, "Secret")["metadata"]["name"] == pick(chart, "Secret")["metadata"]["name"]


def test_rules_and_dashboards_are_those_of_the_folder(objects: list[dict[str, Any]]) -> None:
    alerts = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text("utf-8"))
    assert pick(objects, "PrometheusRule")["spec"] == alerts
    found = pick(objects, "ConfigMap", "starsched-dashboards")
    assert found["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert found["data"].keys() == monitoring.DASHBOARDS.keys()
    for name, text in found["data"].items():
        path = Path("deploy/monitoring/dashboards") / name
        assert text == monitoring.files()[path]
