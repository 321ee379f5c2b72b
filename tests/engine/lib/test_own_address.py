"""The address of this host as another one sees it."""

import pytest

from engine.lib.own_address import own_address


@pytest.mark.parametrize(
    ("towards", "want"),
    [
        ("http://127.0.0.1:8080", "127.0.0.1"),
        ("https://127.0.0.1", "127.0.0.1"),
        ("https://[::1]:6443", "::1"),
        ("https://kubernetes.default.svc", ""),
        ("https://127.0.0.1:notaport", ""),
        ("", ""),
    ],
)
def test_the_address_towards_a_server(towards: str, want: str) -> None:
    assert own_address(towards) == want
