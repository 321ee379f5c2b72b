"""`starsched run`: flags are kube-scheduler's, mistakes end it at once with a message."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from engine.surfaces.cli.program import version
from tests.builders import node_manifest, pod_manifest
from tests.controlplane import AlreadyThere, ControlPlane
from tests.waiting import wait_until
from workbench.cli.main import main

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 2
leaderElection:
  resourceName: mine
  leaseDuration: 30s
profiles:
- schedulerName: packer
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["run", "--secure-port=0", *arguments])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--bind-address=nowhere"], "want an IP address, got `nowhere`", id="address"),
        pytest.param(["--local-port=99999"], "want a port, 0 for none", id="port"),
        pytest.param(["--secure-port=1", f"--tls-cert-file={__file__}"], "or neither", id="no key"),
        pytest.param(["--secure-port=1", "--tls-cipher-suites=X"], "no suite `X`", id="cipher"),
        pytest.param(
            ["--leader-elect-lease-duration=15"], "want a duration such as", id="duration"
        ),
        pytest.param(
            ["--leader-elect-lease-duration=5s"],
            "lease-duration: want more than leader-elect-renew-deadline",
            id="lease times",
        ),
        pytest.param(
            ["--leader-elect", "--leader-elect-resource-name=A B"],
            "leader-elect-resource-name: want a name of at most 253 lower-case letters",
            id="lease name",
        ),
        pytest.param(["--config=/does/not/exist"], "does not exist", id="config"),
        pytest.param(["--max-bindings-in-flight=0"], "0", id="bindings"),
        pytest.param(
            ["--emulated-version=1.38", "--feature-gates=DynamicResourceAllocation=true"],
            "unrecognized feature gate: DynamicResourceAllocation",
            id="gone",
        ),
    ],
)
def test_a_wrong_flag_is_a_usage_error(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """A kubeconfig of a server that is not there."""
    path = tmp_path / "kubeconfig"
    cluster = {"server": "http://127.0.0.1:9"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": cluster}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_source_that_is_misspelt_is_a_usage_error(kubeconfig: Path) -> None:
    result = run(f"--kubeconfig={kubeconfig}", "--policies=configmap:onlyname")
    assert result.exit_code == 2
    assert "want `configmap:NAMESPACE/NAME`" in result.output


def test_a_wrong_configuration_is_reported_with_file_and_line(
    kubeconfig: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.replace("podInitial", "podInitail"))
    result = run(f"--kubeconfig={kubeconfig}", f"--config={config}")
    assert result.exit_code == 2
    assert f"{config}:3" in result.output
    assert "podInitialBackoffSeconds" in result.output


#: A mistake in the profile of a configuration, by what is said of it.
UNUSABLE: Final = {
    "no plugin or policy file `NoSuchPlugin`": (
        "plugins: {score: {enabled: [{name: NoSuchPlugin}]}}"
    ),
    "want one of `LeastAllocated`": (
        "pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: Most}}}]"
    ),
    "at least one bind plugin is needed": "plugins: {bind: {disabled: [{name: '*'}]}}",
    "already registered": (
        "plugins: {score: {enabled: [{name: NodeAffinity}, {name: NodeAffinity}]}}"
    ),
}


@pytest.mark.parametrize("want", UNUSABLE)
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["run", "--secure-port=0"], id="run"),
        pytest.param(["run", "--secure-port=0", "--write-config-to=OUT"], id="write"),
        pytest.param(["extender", "--policies=builtin", "--secure-port=0"], id="extender"),
    ],
)
def test_a_configuration_that_cannot_work_ends_the_process(
    command: list[str], want: str, kubeconfig: Path, tmp_path: Path
) -> None:
    """It stayed up, alive and never ready; and written, it was said to be right."""
    config, out = tmp_path / "config.yaml", tmp_path / "out.yaml"
    config.write_text(f"{CONFIG}  {UNUSABLE[want]}\n")
    arguments = [word.replace("OUT", str(out)) for word in command]
    result = CliRunner().invoke(
        main, [*arguments, f"--kubeconfig={kubeconfig}", f"--config={config}"]
    )
    assert result.exit_code == 2, result.output
    assert f"{config}:" in result.output
    assert want in result.output
    assert not out.exists()


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize("state", ["", "--state-dir=STATE"])
def test_what_the_policies_do_not_mend_ends_the_process_when_they_are_known(
    state: str, kubeconfig: Path, tmp_path: Path
) -> None:
    """NodeName has no score, unless a file takes its place."""
    config, policies = tmp_path / "config.yaml", tmp_path / "policies"
    config.write_text(CONFIG + "  plugins: {score: {enabled: [{name: NodeName}]}}\n")
    policies.mkdir()
    (policies / "mine.star").write_text("def filter(pod, node):\n    return None\n")
    arguments = (f"--kubeconfig={kubeconfig}", f"--config={config}", f"--policies={policies}")
    with Process(*arguments, *([state.replace("STATE", str(tmp_path))] if state else [])) as one:
        one.process.wait(60)
        assert one.process.stderr is not None
        assert f"{config}:9:38" in one.process.stderr.read().decode()
        assert one.process.returncode == 2


def test_the_written_configuration_has_all_that_is_in_use(kubeconfig: Path, tmp_path: Path) -> None:
    """It had neither profiles nor extenders; written from what was written, it is the same."""
    config, out, again = (tmp_path / f"{name}.yaml" for name in ("config", "out", "again"))
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "mine.star").write_text("def score(pod, node):\n    return 1\n")
    config.write_text(
        f"{CONFIG}  plugins: {{score: {{enabled: [{{name: mine, weight: 7}}]}}}}\n"
        "extenders: [{urlPrefix: 'http://h:1/x', filterVerb: filter}]\n"
        "---\napiVersion: starsched.dev/v1\nkind: PolicyRuntime\nlimits: {steps: 5000}\n"
    )
    shared = (f"--kubeconfig={kubeconfig}", f"--policies={policies}")
    assert run(*shared, f"--config={config}", f"--write-config-to={out}").exit_code == 0
    assert run(*shared, f"--config={out}", f"--write-config-to={again}").exit_code == 0
    assert again.read_text() == out.read_text()
    written, runtime = yaml.safe_load_all(out.read_text())
    (profile,) = written["profiles"]
    assert profile["schedulerName"] == "packer"
    assert {"name": "mine", "weight": 7} in profile["plugins"]["score"]["enabled"]
    assert {"name": "TaintToleration", "weight": 3} in profile["plugins"]["score"]["enabled"]
    assert "NodeResourcesFit" in {one["name"] for one in profile["pluginConfig"]}
    assert written["extenders"][0]["httpTimeout"] == "5s"
    assert written["leaderElection"]["leaseDuration"] == "30s"
    assert runtime["limits"] == {"steps": 5000}


def test_policies_that_do_not_load_are_no_reason_to_blame_the_configuration(
    kubeconfig: Path, tmp_path: Path
) -> None:
    config, out, policies = (tmp_path / name for name in ("config.yaml", "out.yaml", "policies"))
    config.write_text(CONFIG)
    policies.mkdir()
    (policies / "mine.star").write_text("def filter(:\n")
    arguments = (f"--kubeconfig={kubeconfig}", f"--policies={policies}", f"--config={config}")
    result = run(*arguments, f"--write-config-to={out}")
    assert result.exit_code == 1
    assert "mine.star:1" in result.output
    assert not out.exists()


def test_a_start_says_what_runs_and_no_password(kubeconfig: Path, tmp_path: Path) -> None:
    """A log of an incident could not be tied to a build."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    result = run(
        f"--kubeconfig={kubeconfig}",
        "--master=https://me:word@host",
        f"--config={config}",
        "--feature-gates=A=true,B=false",
        f"--write-config-to={tmp_path / 'out'}",
    )
    first, *others = (json.loads(line) for line in result.output.splitlines())
    assert first["message"] == "Starting"
    assert first["version"] == version()
    assert first["config"] == str(config)
    assert "--master=https://host" in first["arguments"]
    assert "--feature-gates=[A=true,B=false]" in first["arguments"]
    assert "word" not in result.output
    assert ("B", "warning") in [(one.get("gate"), one["level"]) for one in others]


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    ("soft", "hard", "want"),
    [
        pytest.param(
            32, 32, "open files: want a limit of at least 64, better 160, got 32", id="few"
        ),
        pytest.param(32, 160, "Expected object with name other", id="few, but it may have more"),
    ],
)
def test_too_few_open_files_are_reported_at_once(
    kubeconfig: Path, soft: int, hard: int, want: str
) -> None:
    """It used to end with the traceback of whatever was opened last."""
    arguments = f"--kubeconfig={kubeconfig} --context=other --secure-port=0"
    command = (
        f"ulimit -Sn {soft}; ulimit -Hn {hard}; exec {sys.executable} -m workbench.cli.main run"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f"{command} {arguments}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert want in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow("starts programs")
def test_an_address_that_is_taken_is_reported_in_one_line(kubeconfig: Path) -> None:
    """Who started a second scheduler on one machine was shown the way through three libraries."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        arguments = (
            f"--kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={address.rpartition(':')[2]}",
        )
        done = subprocess.run(
            [sys.executable, "-m", "workbench.cli.main", "run", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert (
        done.stderr.splitlines()[-1] == f"Error: cannot listen on {address}: address already in use"
    )
    assert "Traceback" not in done.stderr


def test_an_unknown_context_is_a_usage_error(kubeconfig: Path) -> None:
    result = run(f"--kubeconfig={kubeconfig}", "--context=elsewhere")
    assert result.exit_code == 2
    assert "elsewhere" in result.output


class Process:
    """A `starsched run` whose endpoints are asked."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "workbench.cli.main",
                "run",
                "--secure-port=0",
                "--local-port=any",
                *arguments,
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.lines: list[dict[str, Any]] = []

    def wait_for(self, message: str, **words: str) -> dict[str, Any]:
        """The next log line of *message* that has all *words*."""
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            line: dict[str, Any] = json.loads(raw)
            self.lines.append(line)
            if line["message"] == message and words.items() <= line.items():
                return line
        raise AssertionError(f"no `{message}` with {words} among {self.lines}")

    def get(self, path: str) -> Any:
        port = next(line["port"] for line in self.lines if "port" in line)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.loads(answer.read())

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stderr is not None
        for raw in self.process.stderr:
            self.lines.append(json.loads(raw))
        self.process.stderr.close()
        return self.process.wait(30)

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()


def test_it_runs_with_a_kube_schedulers_configuration(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    kubeconfig = control_plane.kubeconfig(tmp_path / "kubeconfig")
    with Process(
        f"--kubeconfig={kubeconfig}",
        f"--config={config}",
        "--leader-elect-renew-deadline=5s",
        "--leader-elect-resource-namespace=default",
        f"--state-dir={tmp_path / 'state'}",
    ) as process:
        process.wait_for("Became leader")
        shown = process.get("/configz")["componentconfig"]
        assert shown["leaderElection"] == {
            "leaderElect": True,
            "leaseDuration": "30s",
            "renewDeadline": "5s",
            "retryPeriod": "2s",
            "resourceLock": "leases",
            "resourceName": "mine",
            "resourceNamespace": "default",
        }
        assert shown["podInitialBackoffSeconds"] == 2
        (profile,) = shown["profiles"]
        assert profile["schedulerName"] == "packer"
        assert {"name": "NodeAffinity", "weight": 2} in profile["plugins"]["score"]["enabled"]
        assert process.get("/policies")["active"]["profiles"] == ["packer"]
        lease = control_plane.request(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/mine"
        )
        assert lease["spec"]["leaseDurationSeconds"] == 30
        assert process.stop() == 0
        messages = [line["message"] for line in process.lines]
        assert messages[-1] == "Requested to terminate, exiting"
        assert "Released the lease" in messages
        lease = control_plane.request(
            "GET", "/apis/coordination.k8s.io/v1/namespaces/default/leases/mine"
        )
        assert not lease["spec"].get("holderIdentity")


def test_a_runtime_may_be_in_the_file_of_the_configuration(tmp_path: Path) -> None:
    """It ended the command with a traceback: `expected a single document in the stream`."""
    config = tmp_path / "config.yaml"
    config.write_text(f"apiVersion: starsched.dev/v1\nkind: PolicyRuntime\n---\n{CONFIG}")
    result = run(f"--config={config}", "--leader-elect-renew-deadline=31s")
    assert result.exit_code == 2, result.output
    assert "lease-duration: want more than leader-elect-renew-deadline" in result.output


def test_a_signal_writes_what_it_believes_to_the_log(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    kubeconfig = control_plane.kubeconfig(tmp_path / "kubeconfig")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    control_plane.request("POST", "/api/v1/nodes", node_manifest(f"{namespace}-node"))
    for name, where in (("placed", f"{namespace}-node"), ("waits", None)):
        pod = pod_manifest(name, namespace, node=where, requests={"cpu": "999"}, image="i")
        control_plane.request("POST", pods, pod)
    with Process(f"--kubeconfig={kubeconfig}", "--no-leader-elect", "-v=2") as process:
        # The control plane is shared: pods of other tests may be unschedulable, too.
        attempt = process.wait_for("Unschedulable pod", pod=f"{namespace}/waits")
        process.process.send_signal(signal.SIGUSR2)
        process.wait_for("Dump ended")
        assert process.stop() == 0
    control_plane.request("DELETE", f"/api/v1/nodes/{namespace}-node")
    shown = [line for line in process.lines if line["message"].startswith("Dump of")]
    (node,) = (line for line in shown if line.get("node") == f"{namespace}-node")
    assert f"{namespace}/placed" in node["pods"]  # and perhaps pods of other tests
    assert node["requested"]["cpu"] >= 999_000
    (waiting,) = (line for line in shown if line.get("pod") == f"{namespace}/waits")
    assert waiting["queue"] in ("unschedulable", "backoff")
    assert waiting["rejectors"] == ["NodeResourcesFit"]
    assert attempt["tried_because"] == waiting["tried_because"] == "new pod"
    assert waiting["moves"][0].endswith(" ago: unknown -> active: new pod")
    assert not [line for line in process.lines if line["message"] == "Cache mismatch"]


def test_a_stolen_lease_ends_the_process(control_plane: ControlPlane, tmp_path: Path) -> None:
    kubeconfig = control_plane.kubeconfig(tmp_path / "kubeconfig")
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/stolen"
    with Process(
        f"--kubeconfig={kubeconfig}",
        "--leader-elect-resource-name=stolen",
        "--leader-elect-resource-namespace=default",
        "--leader-elect-retry-period=200ms",
    ) as process:
        process.wait_for("Became leader")

        def steal() -> bool:
            lease = control_plane.request("GET", path)
            lease["spec"]["holderIdentity"] = "thief"
            try:
                control_plane.request("PUT", path, lease)
            except AlreadyThere:  # it was renewed between our two requests
                return False
            return True

        wait_until(steal)
        process.wait_for("Leaderelection lost")
        assert process.process.wait(30) == 1


@pytest.mark.slow("starts programs")
def test_a_second_signal_ends_it_at_once(kubeconfig: Path) -> None:
    with Process(f"--kubeconfig={kubeconfig}", "--no-leader-elect") as process:
        process.wait_for("Serving locally")
        process.process.send_signal(signal.SIGINT)
        process.wait_for("Stopping")
        process.process.send_signal(signal.SIGINT)
        # Either it had ended well by then, or it ends now.
        assert process.process.wait(10) in (0, 1)
