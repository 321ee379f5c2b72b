"""The site of the documents: built strictly, whole, and nothing of it comes from elsewhere."""

import functools
import http.server
import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import AsyncIterator, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser import running_browser, visiting

ROOT = Path(__file__).resolve().parents[2]
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
#: Without the repository of a git that runs the tests, such as one in a hook.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "SITE_"))},
    "NO_MKDOCS_2_WARNING": "1",
}

pytestmark = pytest.mark.slow("builds the site")


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make site-release` adds to the branch, in a repository of the test's own."""
    repository = tmp_path_factory.mktemp("repository")
    for name in ("Makefile", "pyproject.toml", "mkdocs.yml", "docs", "devkit"):
        (repository / name).symlink_to(ROOT / name)
    here = functools.partial(
        subprocess.run, cwd=repository, env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL
    )
    here(["git", "init", "--quiet"])
    here(["git", "config", "user.name", "test"])
    here(["git", "config", "user.email", "test@example.com"])
    here(["git", "commit", "--quiet", "--allow-empty", "--message", "Begin"])
    # In the environment of the tests, which need not be the project's and is set up already.
    stamp = f"{sys.prefix}/.installed"
    here(["make", f"VENV={sys.prefix}", f"--old-file={stamp}", "site-release"])
    site = repository / "published"
    site.mkdir()
    here(["git", f"--work-tree={site}", "checkout", "--quiet", "gh-pages", "--", "."])
    return site


@pytest.fixture(scope="module")
def site(released: Path) -> Path:
    return released / VERSION


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(released: Path) -> Iterator[str]:
    """Where a server of files has it."""
    handler = functools.partial(_Quiet, directory=str(released))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


class _Parts(HTMLParser):
    """The ids, links and loaded files of a page, and the texts of its paragraphs and cells."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids, self.links, self.loaded = set[str](), list[str](), list[str]()
        self.prose, self.has_figures = "", False
        self._inside: list[str] = []
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.ids.add(found.get("id", ""))
        self.has_figures |= found.get("class") == "mermaid"
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])
        if tag in ("article", "pre", "code", "script", "h1", "h2", "h3"):
            self._inside.append(tag)
        self.prose += {"p": "\n", "li": "\n", "td": "cell "}.get(tag, "")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and tag == self._inside[-1]:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if self._inside == ["article"]:
            self.prose += data


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Parts]:
    return {page: _Parts(page) for page in site.rglob("*.html") if page.name != "404.html"}


def test_every_document_is_a_page(pages: dict[Path, _Parts], site: Path) -> None:
    documents = {path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")}
    want = {
        path.parent if path.stem in ("README", "index") else path.with_suffix("")
        for path in documents
    }
    assert {page.parent.relative_to(site) for page in pages} == want


def test_every_link_within_the_site_leads_somewhere(pages: dict[Path, _Parts], site: Path) -> None:
    """Those that hooks make too: mkdocs looks at those of the documents alone."""
    broken, count = [], 0
    for page, parts in pages.items():
        for link in (*parts.links, *parts.loaded):
            url = urlsplit(link)
            if url.scheme:
                continue
            count += 1
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            target = target / "index.html" if target.is_dir() else target
            is_there = target == site / "404.html" or target.is_file()
            if not is_there or (url.fragment and unquote(url.fragment) not in pages[target].ids):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert count > 1000
    assert broken == []


def test_links_out_of_the_documents_lead_into_the_repository(
    pages: dict[Path, _Parts],
) -> None:
    found = {link for parts in pages.values() for link in parts.links if "://" in link}
    into = re.compile(rf"https://github\.com/[\w-]+/[\w-]+/(?:blob|tree)/v{VERSION}/([\w./-]+)$")
    paths = {match[1] for link in found if (match := into.match(link))}
    assert {"SECURITY.md", "deploy/base/cluster-role.yaml", "deploy/examples/gpu"} <= paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert len(found - {link for link in found if into.match(link)}) <= 2  # the footer's


def test_no_markdown_is_left_in_a_page(pages: dict[Path, _Parts], site: Path) -> None:
    """A list without an empty line before it is a list on a code host, and here it is none."""
    left = re.compile(r"\]\(|\*\*\w|^[ \t]*(?:- |\d+\. |\| |#+ )", re.MULTILINE)
    found = {
        str(page.relative_to(site)): match[0]
        for page, parts in pages.items()
        if (match := left.search(parts.prose))
    }
    assert found == {}


def test_words_of_the_glossary_lead_to_it(pages: dict[Path, _Parts], site: Path) -> None:
    links = pages[site / "rollout" / "index.html"].links
    assert links.count("../glossary/#control-sample") == 1
    words = {link.partition("#")[2] for parts in pages.values() for link in parts.links
             if "glossary/#" in link}  # fmt: skip
    assert len(words) > 10


def test_what_is_broken_ends_the_build(tmp_path: Path) -> None:
    documents = tmp_path / "docs"
    documents.mkdir()
    (documents / "index.md").write_text(
        "# Broken\n[a](nowhere.md) [b](#nothing) [c](../deploy/nowhere.yaml) [d](/policies.md)"
        " [e](../README.md)\n"
    )
    (documents / "forgotten.md").write_text("# No page leads here\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: docs\nextra_css: []\n"
        f"hooks: [{ROOT / 'devkit' / 'tools' / 'site_hooks.py'}]\nnav: [index.md, gone.md]\n"
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    answer = subprocess.run(
        command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 1
    warnings = re.findall(r"^WARNING -  (.*(?:\n  - .*)*)", answer.stderr, re.MULTILINE)
    for part in ("nowhere.md", "#nothing", "deploy/nowhere.yaml", "/policies.md", "gone.md",
                 "forgotten.md"):  # fmt: skip
        assert any(part in warning for warning in warnings), part
    assert "README" not in "".join(warnings)


async def _open(page: Page, address: str) -> list[str]:
    """Load it, and give what was asked of others than its server."""
    elsewhere: list[str] = []
    page.on(
        "request",
        lambda request: (
            elsewhere.append(request.url)
            if not request.url.startswith((re.sub(r"(//[^/]+/).*", r"\1", address), "data:"))
            else None
        ),
    )
    await page.goto(address)
    await page.wait_for_load_state("networkidle")
    return elsewhere


@pytest.mark.asyncio(loop_scope="module")
async def test_every_figure_is_drawn_by_the_site_s_own_files(
    browser: Browser, address: str, site: Path, pages: dict[Path, _Parts]
) -> None:
    with_figures = [page.parent.relative_to(site) for page in pages if pages[page].has_figures]
    assert Path("architecture") in with_figures
    async with visiting(browser) as visit:
        for page in with_figures:
            assert await _open(visit.page, f"{address}{VERSION}/{page}/") == []
            await expect(visit.page.locator("pre.mermaid")).to_have_count(0)
            for figure in await visit.page.locator("div.mermaid").all():
                box = await figure.bounding_box()
                assert box is not None
                assert box["height"] > 40
        assert visit.complaints == []


@pytest.mark.asyncio(loop_scope="module")
async def test_the_first_page_says_on_one_screen_what_this_is_for(
    browser: Browser, address: str
) -> None:
    async with visiting(browser, viewport={"width": 1440, "height": 900}) as visit:
        # The newest version, without being asked for it.
        assert await _open(visit.page, address) == []
        assert visit.page.url == f"{address}latest/"
        for what in ("h1", "article pre", ".grid.cards li:last-child", "article img"):
            for part in await visit.page.locator(what).all():
                box = await part.bounding_box()
                assert box is not None, what
                assert box["y"] + box["height"] <= 900, what
        pictures = visit.page.locator("article img")
        widths = await pictures.evaluate_all("found => found.map(one => one.naturalWidth)")
        assert len(widths) >= 4
        assert min(widths) > 0
        await expect(visit.page.locator(".md-version")).to_contain_text(VERSION)
        assert visit.complaints == []


@pytest.mark.asyncio(loop_scope="module")
async def test_the_search_finds_a_page_by_its_words(browser: Browser, address: str) -> None:
    async with visiting(browser) as visit:
        await _open(visit.page, f"{address}latest/")
        # The theme looks for what was typed when a key goes up.
        await visit.page.locator("input[name=query]").press_sequentially("disruption budget")
        results = visit.page.locator(".md-search-result__link")
        await expect(results.first).to_be_visible()
        assert visit.complaints == []
