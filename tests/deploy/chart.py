"""Runs the real helm on the chart, without the settings of whoever runs the tests."""

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.rendering import DEPLOY, ROOT, Manifest
from tests.scripts import go_program

CHART = DEPLOY / "helm" / "starsched"


@functools.cache
def helm_binary() -> Path:
    """The pinned helm; builds it if it is missing."""
    return go_program("helm")


def run_helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run helm with *arguments*, in the project's folder; what it prints and its exit code."""
    with tempfile.TemporaryDirectory(prefix="starsched-helm-") as home:
        folders = {f"HELM_{name}_HOME": home for name in ("CACHE", "CONFIG", "DATA")}
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return subprocess.run(
            [helm_binary(), *arguments],
            env={**kept, **folders, "HOME": home},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )


def given(values: dict[str, Any]) -> list[str]:
    """*values* as arguments of helm, each a whole top-level value."""
    return [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]


def render_chart(
    values: dict[str, Any] | None = None,
    *,
    release: str = "starsched",
    namespace: str = "starsched",
) -> list[Manifest]:
    """The objects of a release, in the order in which helm prints them."""
    result = run_helm("template", release, CHART, "-n", namespace, *given(values or {}))
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", result.stderr
    return [one for one in yaml.safe_load_all(result.stdout) if one is not None]


def refusal(values: dict[str, Any]) -> str:
    """Why helm renders nothing with *values*."""
    result = run_helm("template", "starsched", CHART, "-n", "starsched", *given(values))
    assert result.returncode != 0, result.stdout
    return result.stderr
