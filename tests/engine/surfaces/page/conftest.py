"""What tests of the page share: a browser, and the page on answers made by hand."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from tests.browser import running_browser
from tests.engine.surfaces.page.site import Site, running_site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with running_site() as site:
        yield site
