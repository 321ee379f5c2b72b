"""`starsched check --rbac`: the rights that these policies need, as a role to apply."""

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from tests.workloads import SPOT_SHARE
from workbench.cli.main import main

_READS_NONE = '''"""Takes every node.

Hooks: filter. Reads: nothing.
"""

def filter(pod, node):
    return None
'''


def _check(directory: Path, text: str, *more: str) -> tuple[int, str]:
    (directory / "share.star").write_text(text)
    result = CliRunner().invoke(main, ["check", str(directory), "--rbac", *more])
    return result.exit_code, result.output


def _readable(role: dict[str, Any]) -> set[str]:
    return {one for rule in role["rules"] if "watch" in rule["verbs"] for one in rule["resources"]}


def test_a_role_has_the_right_to_what_the_policies_read(tmp_path: Path) -> None:
    """What only some policies read is in it only for these."""
    code, text = _check(tmp_path, SPOT_SHARE)
    assert code == 0, text
    role = yaml.safe_load(text)
    assert (role["kind"], role["metadata"]) == ("ClusterRole", {"name": "starsched"})
    code, text = _check(tmp_path, _READS_NONE, "--output", "json")
    without = json.loads(text)["rbac"]
    assert _readable(role) - _readable(without) == {"deployments", "jobs"}
    assert {"pods", "nodes", "replicasets"} <= _readable(without)


def test_there_is_no_role_for_policies_that_cannot_run(tmp_path: Path) -> None:
    code, text = _check(tmp_path, "def filter(:\n")
    assert code == 1
    assert "ClusterRole" not in text
