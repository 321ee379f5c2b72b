"""Writes the recipes into docs/cookbook.md, from the texts of policies/cookbook.

A new file there is all that a new section takes; what is written by hand before and after the
generated part is kept. Run it with `make docs`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # run as a file, only `devkit/tools/` is on the path

from engine.language.syntax import docstring  # noqa: E402  # found by the line above
from engine.policy.shipped import recipes  # noqa: E402

PAGE: Final = ROOT / "docs" / "cookbook.md"
BEGIN: Final = "<!-- made from policies/cookbook by `make docs` -->\n"
END: Final = "<!-- end of what is made -->\n"


def page() -> str:
    """The page as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([f"{before}{BEGIN}", *_sections(), f"{END}{after}"])


def _sections() -> Iterator[str]:
    rows = [f"| [`{name}`](#{name}) | {recipe.does} |" for name, recipe in recipes().items()]
    yield "\n".join(["| recipe | what it does |", "| --- | --- |", *rows, ""])
    for name, recipe in recipes().items():
        code = recipe.text.split('"""', 2)[2]
        source = f"../policies/cookbook/{name}"
        links = f"[Text]({source}.star) and [test]({source}_test.star)."
        yield f"## {name}\n\n{docstring(recipe.text)}\n"
        yield f"```python\n{code.strip()}\n```\n\n{links}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
