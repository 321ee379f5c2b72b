"""Objects made of the templates of scheduler_perf.

Owns the Go program that renders them (they are Go templates) and what they look like as manifests.
"""

import functools
import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from devkit.benchmarks.objects import Manifest
from tests.scripts import script

_RENDER: Final = Path(__file__).parent / "render"


class TemplateError(Exception):
    """A template cannot be rendered; the message names it."""


class Templates:
    """Renders templates. Use as a context manager: a process does it."""

    def __enter__(self) -> "Templates":
        self._scratch = tempfile.TemporaryDirectory(prefix="starsched-bench-")
        program = Path(self._scratch.name) / "render"
        script("devkit/controlplane/build.py").compile_program(_RENDER, program)
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its input, which ends it
        self._scratch.cleanup()

    def objects(
        self,
        path: Path,
        count: int,
        params: Mapping[str, Any] | None = None,
        *,
        first: int = 0,
    ) -> list[Manifest]:
        """*count* manifests of the template at *path*, which may know `Index` and `Count`.

        Raises `TemplateError`. Each is the caller's own, and may share parts with others that are
        not to be changed: all but what is in `metadata`.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        found = []
        request = {
            "path": str(path.resolve()),
            "params": params or {},
            "first": first,
            "count": count,
            "of": first + count,
        }
        print(json.dumps(request), file=self._process.stdin, flush=True)
        for _ in range(count):
            answer = json.loads(self._process.stdout.readline())
            if isinstance(answer, dict):
                raise TemplateError(answer["error"])
            parsed = _parsed(answer)
            found.append({**parsed, "metadata": dict(parsed.get("metadata") or {})})
        return found


@functools.lru_cache(maxsize=64)  # most are the same for every index
def _parsed(text: str) -> Manifest:
    parsed: Manifest = yaml.load(text, yaml.CSafeLoader)
    return parsed
