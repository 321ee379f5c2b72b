"""What the API server refuses in the objects that a scheduler reads, and what it accepts."""

import pytest

from devkit.cluster.patch import merge
from engine.core.manifests.kinds import Kind
from engine.core.manifests.schema import without_nulls
from tests.contract.harness import Api, Json
from tests.contract.rule_cases import CASES, Case, verdict
from tests.contract.storage_cases import DEFAULTS, STORAGE_CASES
from tests.contract.workload_cases import WORKLOAD_CASES

# Older API servers have other rules.
pytestmark = pytest.mark.kubernetes("1.37")


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.id) for case in [*CASES, *STORAGE_CASES, *WORKLOAD_CASES]]
)
async def test_both_servers_accept_and_refuse_the_same(served: Api, case: Case) -> None:
    assert await verdict(served, case) == case.want


@pytest.mark.parametrize(("kind", "sent", "added"), DEFAULTS)
async def test_both_servers_fill_in_the_same(
    served: Api, kind: Kind, sent: Json, added: Json
) -> None:
    path = kind.path(served.namespace if kind.namespaced else "")
    answer = await served.post(path, {"metadata": {"name": "a"}, **sent}, dryRun="All")
    assert answer.status == 201, answer
    ours = {"kind", "apiVersion", "metadata", "status"}
    body = without_nulls(kind, answer.body)
    got = {key: value for key, value in body.items() if key not in ours}
    assert got == merge(sent, added)
