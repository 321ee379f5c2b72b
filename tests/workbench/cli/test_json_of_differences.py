"""`--output json` of the commands that compare or explain: JSON, whatever makes the difference."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from tests.scripts import sources
from workbench.cli.main import main
from workbench.cli.standard_output import INTERNAL_ERROR

PROFILE: Final = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint:
      enabled: [{name: only, weight: 100}]
"""
POLICIES: Final = {
    "a filter": 'def filter(pod, node):\n    return "no" if node.name == "n1" else None',
    "a filter everywhere": 'def filter(pod, node):\n    return ["no", "never"]',
    "a final no": 'def filter(pod, node):\n    return unresolvable("no", token = "NotHere")',
    "a pre-filter": 'def pre_filter(pod):\n    return reject("no")',
    "named nodes": 'def pre_filter(pod):\n    return only_nodes(["n2"])',
    "a score": 'def score(pod, node):\n    return 100 if node.name == "n1" else 0',
    "a score of all": "def score_all(pod, nodes):\n    return [len(n.name) for n in nodes]",
    "a normalized score": "def score(pod, node):\n    return 7\n\n"
    "def normalize(score, over):\n    return 100",
    "a tie": "def tie_key(pod, node):\n    return -len(node.name)",
    "a gate": 'def pre_enqueue(pod):\n    return "on hold"',
    "an order": "def queue_key(pod):\n    return pod.name",
    "a group": 'def group_of(pod):\n    return gang("g", 9)\n\n'
    "def permit(pod, group):\n    return wait(5)",
    "victims": "def victim_key(pod):\n    return None",
    "candidates": "def candidate_key(node, victims):\n    return node.name",
    "annotations": 'def annotate(pod, node):\n    return {"a": "b"}',
    "counters": """def counters(pod):
    return [count_pods(None, labels = {"a": "b"}, namespaces = ["default"])]

def filter(pod, node, counts):
    return "no" if counts[0].total == 0 else None""",
    "a failure": "def filter(pod, node):\n    return fail(node.name)",
    "a failing score": "def score(pod, node):\n    return fail(node.name)",
}
_ON: Final = ["--on", "{cluster}"]
COMMANDS: Final = {
    "diff": ["diff", "builtin", "{policies}", *_ON],
    "compare": ["compare", "{policies}", "builtin", *_ON],
    "explain": ["explain", "default/x", "--policies", "{policies}", "--snapshot", "{cluster}"],
    "simulate": ["simulate", "{cluster}", "--policies", "{policies}"],
    "check": ["check", "{policies}", "--reads", "--never-rejects-everything", *_ON],
}


def _pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": name}}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    nodes = [
        {"kind": "Node", "metadata": {"name": name}, "status": {"allocatable": room}}
        for name in ("n1", "n2", "n10")
    ]
    pods = [*(_pod(f"p{i}", "1") for i in range(3)), _pod("x", "4", priority=9)]
    placed = [_pod("q", "1", nodeName="n1"), _pod("r", "1", nodeName="n2")]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"kind": "List", "items": [*nodes, *placed, *pods]}))
    return path


@pytest.mark.usefixtures("policies_load_in_process")
@pytest.mark.slow("runs five commands for each kind of difference")
@pytest.mark.parametrize("text", POLICIES.values(), ids=POLICIES)
def test_output_is_json_whatever_makes_the_difference(
    text: str, cluster: Path, tmp_path: Path
) -> None:
    """`plan --output json` ended in a traceback for each difference that a filter made.

    Its exit code was that of differences, so what reads it took the traceback for a result.
    """
    policies = tmp_path / "policies"
    policies.mkdir()
    profile = PROFILE
    if "queue_key" in text:
        profile += "    queueSort: {enabled: [{name: only}], disabled: [{name: '*'}]}\n"
    (policies / "only.star").write_text(f'"""Makes a difference."""\n\n{text}\n')
    (policies / "config.yaml").write_text(profile)
    for name, words in COMMANDS.items():
        arguments = [one.format(policies=policies, cluster=cluster) for one in words]
        got = CliRunner().invoke(main, [*arguments, "--output", "json"])
        if got.exception is not None and not isinstance(got.exception, SystemExit):
            raise got.exception
        assert got.exit_code in (0, 1, 3), f"{name}: {got.output}"
        answer = json.loads(got.stdout)
        assert name == "check" or "ResourceQuota" in answer["not_applied"], name


def test_fields_of_msgspec_stand_in_its_records_alone() -> None:
    """In a dataclass such a field is the default value itself, and no JSON can be made of it."""
    wrong = []
    for path in sources("engine", "workbench", "devkit"):
        if "msgspec.field(" not in (text := path.read_text()):
            continue
        for made in ast.walk(ast.parse(text)):
            if not isinstance(made, ast.ClassDef):
                continue
            is_dataclass = any("dataclass" in ast.unparse(one) for one in made.decorator_list)
            uses = "msgspec.field(" in ast.unparse(made)
            if uses and (is_dataclass or not made.bases):
                wrong.append(f"{path.name}:{made.lineno} {made.name}")
    assert not wrong


def test_a_fault_of_the_command_is_no_finding() -> None:
    """A traceback ended with 1, which is what differences end with."""
    program = (
        "import sys, workbench.cli.eject_command as command\n"
        "from workbench.cli.main import main\n"
        "command.print_json = lambda value: 1 // 0\n"
        "sys.argv = ['starsched', 'eject', 'NodeName', '--output', 'json']\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == INTERNAL_ERROR
    assert "ZeroDivisionError" in done.stderr
    assert "internal error" in done.stderr
