"""What the API server refuses in the objects that a scheduler reads, and what it accepts."""

import pytest

from tests.contract.harness import Api
from tests.contract.rule_cases import CASES, Case, verdict

# Older API servers have other rules.
pytestmark = pytest.mark.kubernetes("1.37")


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in CASES])
async def test_both_servers_accept_and_refuse_the_same(served: Api, case: Case) -> None:
    assert await verdict(served, case) == case.want
