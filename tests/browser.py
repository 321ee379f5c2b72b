"""A real browser for tests: headless Chromium, in the version that `devkit/tools/chromium` pins."""

import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.scripts import script

#: What a browser does by itself, to hosts that a test has not got.
_QUIET: Final = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)

#: Other tests may want the cores; a condition that holds ends the wait at once.
expect.set_options(timeout=30_000)


@contextlib.asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """A browser; installs it if it is missing."""
    build = script("devkit/tools/chromium/build.py")
    program = build.browser()
    environment: dict[str, str | float | bool] = {**os.environ, **build.environment(program)}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=list(_QUIET), env=environment
        )
        try:
            yield browser
        finally:
            await browser.close()


@dataclass
class Visit:
    """A tab, and everything that it complained about."""

    page: Page
    complaints: list[str] = field(default_factory=list)


@contextlib.asynccontextmanager
async def visiting(browser: Browser, **options: Any) -> AsyncIterator[Visit]:
    """A tab of its own in *browser*; what goes wrong in it is noted."""
    context: BrowserContext = await browser.new_context(locale="en-US", **options)
    try:
        visit = Visit(await context.new_page())
        visit.page.set_default_timeout(30_000)
        visit.page.on("pageerror", lambda error: visit.complaints.append(str(error)))
        visit.page.on("dialog", lambda dialog: visit.complaints.append(f"dialog {dialog.message}"))
        visit.page.on(
            "console",
            lambda message: (
                visit.complaints.append(message.text)
                if message.type in ("error", "warning")
                else None
            ),
        )
        yield visit
    finally:
        await context.close()
