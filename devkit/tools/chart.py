"""Writes the parts of the Helm chart that have their source elsewhere, and its README.

Copies below `files/` keep the path of their source: a chart may read only what is inside it. The
README's tables are the comments of `values.yaml`.

Run it after a change of any source; `make chart` does.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "deploy" / "helm" / "starsched"
#: What the chart's templates read.
SOURCES: Final = (
    "deploy/base/cluster-role.yaml",
    "deploy/base/readers.yaml",
    "deploy/base/role.yaml",
    "deploy/base/rollout.yaml",
    "deploy/authentication/role-binding.yaml",
    "deploy/overlays/replace/lease-role.yaml",
    "deploy/webhook/role.yaml",
    "deploy/examples/*/profile.yaml",
    "deploy/monitoring/alerts.yaml",
    "deploy/monitoring/dashboards/*.json",
    "policies/examples/*.star",
    "policies/examples/profile.yaml",
)
_BEGIN: Final = "<!-- written by `make chart` from values.yaml -->"
_END: Final = "<!-- end -->"


def texts() -> dict[Path, str]:
    """The text of every written file, by its path."""
    copies = {
        CHART / "files" / path.relative_to(ROOT): path.read_text(encoding="utf-8")
        for pattern in SOURCES
        for path in sorted(ROOT.glob(pattern))
    }
    return {
        **copies,
        CHART / "files" / "built-in.txt": _built_in(),
        CHART / "README.md": _with_tables((CHART / "README.md").read_text(encoding="utf-8")),
    }


def leftovers(written: Iterable[Path]) -> list[Path]:
    """Files below `files/` that are not among those *written*: their source is gone."""
    found = {path for path in (CHART / "files").rglob("*") if path.is_file()}
    return sorted(found - set(written))


def _built_in() -> str:
    """The stem of every policy that stands for a plugin of kube-scheduler, one a line."""
    stems = {path.stem for path in (ROOT / "policies" / "kubernetes").glob("*.star")}
    return "".join(f"{stem}\n" for stem in sorted(stems) if not stem.endswith("_test"))


# --- README --------------------------------------------------------------------------------------


def _with_tables(readme: str) -> str:
    before, _, rest = readme.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    values = (CHART / "values.yaml").read_text(encoding="utf-8")
    return f"{before}{_BEGIN}\n{''.join(_tables(values))}\n{_END}{after}"


def _tables(values: str) -> Iterator[str]:
    """A heading per section of *values*, and a table of the values in it."""
    sections = [
        (number, line.removeprefix("## "))
        for number, line in enumerate(values.splitlines())
        if line.startswith("## ")
    ]
    rows = list(documented(values))
    for (start, title), end in zip(
        sections, [*(number for number, _ in sections[1:]), len(values)], strict=True
    ):
        yield f"\n### {title}\n\n| value | default | means |\n| --- | --- | --- |\n"
        for line, path, default, text in rows:
            if start < line < end:
                yield f"| `{path}` | `{default}` | {text} |\n"


def documented(values: str) -> Iterator[tuple[int, str, str, str]]:
    """Line, path, default and comment of every value of *values* that has a comment."""
    yield from _commented(yaml.compose(values), yaml.safe_load(values), values.splitlines(), "")


def _commented(
    node: yaml.Node, values: Any, lines: list[str], prefix: str
) -> Iterator[tuple[int, str, str, str]]:
    for key, value in node.value:
        line = key.start_mark.line
        path = f"{prefix}{key.value}"
        first = line
        while re.match(r" *# ", lines[first - 1]):
            first -= 1
        comment = " ".join(one.strip().removeprefix("# ") for one in lines[first:line])
        default = values[key.value]
        if comment:
            yield line, path, _on_one_line(default), comment.replace("|", "\\|")
        elif isinstance(default, dict):
            yield from _commented(value, default, lines, f"{path}.")


def _on_one_line(default: Any) -> str:
    """A default as YAML of one line."""
    text = yaml.safe_dump(default, default_flow_style=True, sort_keys=False, width=1000)
    return text.removesuffix("...\n").strip()


def write() -> None:
    """Write every file that differs from its source, and delete copies without one."""
    written = texts()
    for path, text in written.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
    for path in leftovers(written):
        path.unlink()
        print(f"{path.relative_to(ROOT)}: deleted")


if __name__ == "__main__":
    write()
