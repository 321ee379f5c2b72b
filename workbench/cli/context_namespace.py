"""The namespace that a kubeconfig's context names, as kubectl takes it."""

import os
from pathlib import Path
from typing import Any, Final

import yaml

_DEFAULT: Final = "default"


def context_namespace(kubeconfig: Path | None, context: str | None) -> str:
    """The namespace of *context* (None: the current one); `default` if it names none.

    Files that cannot be read are left to whatever connects.
    """
    named = os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    paths = [str(kubeconfig)] if kubeconfig is not None else named.split(os.pathsep)
    wanted = context
    found: dict[Any, Any] = {}
    for path in filter(None, paths):
        document = _read(path)
        wanted = wanted or document.get("current-context")
        for one in document.get("contexts") or []:
            if isinstance(one, dict):
                found.setdefault(one.get("name"), one.get("context") or {})
    chosen = found.get(wanted)
    return str(chosen.get("namespace") or _DEFAULT) if isinstance(chosen, dict) else _DEFAULT


def _read(path: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(Path(path).read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return document if isinstance(document, dict) else {}
