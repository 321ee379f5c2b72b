"""What lists and watches may ask for: every combination of their options.

`GOLDEN=write` has the real server write the file again.
"""

import os

import pytest

from tests.contract.harness import Api
from tests.contract.list_options import ANSWERS, answers

# Older API servers know other options.
pytestmark = pytest.mark.kubernetes("1.37")


async def test_both_servers_answer_every_combination_of_options_alike(api: Api) -> None:
    got = await answers(api)
    if os.environ.get("GOLDEN") == "write" and not api.is_embedded:
        ANSWERS.write_text(got)
    assert got == ANSWERS.read_text()
