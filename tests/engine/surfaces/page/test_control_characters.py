"""No page and no answer of an address has control characters of what others wrote."""

import json
import re
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.engine.lib.hostile import HOSTILE, raw_in
from tests.engine.surfaces.page.site import _SCREENS, Site


def _hostile(value: Any) -> Any:
    """*value* with the hostile text after every text, but for times and single words."""
    if isinstance(value, str):
        is_word = value.replace("_", "").isalpha() and value.islower()
        return value if is_word or value[:4].isdigit() else value + HOSTILE
    if isinstance(value, msgspec.Struct):
        fields = {name: _hostile(getattr(value, name)) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, dict):
        return {_hostile(key): _hostile(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_hostile, value))
    return value


@pytest.mark.parametrize("path", sorted(_SCREENS))
@pytest.mark.parametrize("accept", ["text/html", "application/json"])
async def test_no_screen_shows_them_raw(site: Site, path: str, accept: str) -> None:
    """Letters from right to left, which change what is read, and what is not seen at all."""
    site.answers[path] = _hostile(site.answers[path])
    address = re.sub(r"\{[^}]+\}", "a", path)
    async with (
        aiohttp.ClientSession(site.url) as session,
        session.get(address, headers={"Accept": accept}) as response,
    ):
        body = (await response.read()).decode()
    assert response.status == 200
    assert raw_in(body) == []
    assert "u202e" in body
    if accept == "application/json":
        assert json.loads(body) == json.loads(msgspec.json.encode(site.answers[path]))
