"""Small programs to ask: a policy's text in, verdicts out."""

import json
from collections.abc import Mapping
from typing import Any

from engine.policy.evaluator import Call, Instance, Limits, Program


def program_of(
    text: str,
    *,
    args: dict[str, Any] | None = None,
    limits: Limits | None = None,
    files: Mapping[str, str] | None = None,
) -> Program:
    """A program of one policy `x.star`; *files* are beside it, by stem."""
    neighbour = {f"{stem}.star": other for stem, other in (files or {}).items()}
    instances = (Instance("x", "x.star", args or {}),)
    return Program({"x.star": text, **neighbour}, instances, limits or Limits())


def per_pod(hook: str, pod: dict[str, Any] | None = None, **extra: Any) -> Call:
    """A call of a per-pod hook."""
    return Call(0, hook, _json(pod or {}), None, _json(extra))


def per_node(
    hook: str, *nodes: dict[str, Any] | int, pod: dict[str, Any] | None = None, **extra: Any
) -> Call:
    """A call of a per-node hook, or of `normalize` with scores as entries."""
    return Call(0, hook, _json(pod or {}), [_json(node) for node in nodes], _json(extra))


def named(*names: str) -> list[dict[str, Any]]:
    """Nodes of which only the name is given."""
    return [{"name": name} for name in names]


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
