import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = [
    found
    for page in ("parity", "compatibility")
    for found in re.findall(
        r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / f"{page}.md").read_text("utf-8")
    )
]


def test_tests_are_named() -> None:
    assert len(NAMED) >= 20


@pytest.mark.parametrize(("file", "test"), sorted(set(NAMED)))
def test_every_difference_and_every_feature_has_its_test(file: str, test: str) -> None:
    assert re.search(rf"^(async )?def {test}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)
