"""How a replica is added to those that the API server trusts.

On a real API server: `tests/deploy/test_webhook.py`.
"""

import base64

import pytest

from engine.rollout.admission_registration import MOST_CERTIFICATES, with_certificate


def pem(body: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"


def bundle(*texts: str) -> str:
    return base64.b64encode("".join(texts).encode()).decode()


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param("", bundle(pem("ours")), id="the first"),
        pytest.param("no base64", bundle(pem("ours")), id="nonsense goes"),
        pytest.param(bundle("text\n", pem("a")), bundle(pem("a"), pem("ours")), id="another's"),
        pytest.param(
            bundle(pem("ours"), pem("a")), bundle(pem("ours"), pem("a")), id="it is there already"
        ),
    ],
)
def test_a_certificate_is_added_to_those_of_the_other_replicas(held: str, want: str) -> None:
    assert with_certificate(held, pem("ours")) == want


def test_the_newest_certificates_stay() -> None:
    held = ""
    for number in range(MOST_CERTIFICATES + 2):
        held = with_certificate(held, pem(str(number)))
    want = bundle(*(pem(str(number)) for number in range(2, MOST_CERTIFICATES + 2)))
    assert held == want


def test_before_it_listens_a_replica_adds_nothing() -> None:
    assert with_certificate(bundle(pem("a")), "") == bundle(pem("a"))
