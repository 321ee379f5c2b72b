"""What the site does with the documents beyond what mkdocs does by itself; named in mkdocs.yml.

- A folder in the navigation (`hooks/`) stands for its pages, in the order of their names.
- A link to a file outside of docs/ leads to the repository, at the revision of the site. A link to
  one that is not there is a warning, and with `--strict` an error, as for the other links.
- A word of the glossary leads to its row where a page first has it, if `extra.glossary` names it.
- A page with a figure loads the library that draws it, which is one of the site's own files.
"""

import html
import logging
import re
from pathlib import Path
from posixpath import normpath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

_LOG: Final = logging.getLogger("mkdocs.hooks.site")
_ROOT: Final = Path(__file__).resolve().parents[2]
_GLOSSARY: Final = "glossary.md"
_LIBRARY: Final = "assets/mermaid.tiny.js"

_OUTSIDE: Final = re.compile(r"(?<=\]\()(\.\./[^)\s#]*)")
#: A row of the glossary: the word, and perhaps something in parentheses; what it means.
_ROW: Final = re.compile(r"^\| ([a-z][a-z -]*?)( \([^)]*\))? \| (.+) \|$", re.MULTILINE)
#: What no link is put into, and tags; what lies between is text.
_NO_TEXT: Final = re.compile(
    r"(<a\b.*?</a>|<code\b.*?</code>|<pre\b.*?</pre>|<h\d\b.*?</h\d>|<[^>]*>)", re.DOTALL
)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of a folder where the navigation names the folder."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    return config


def _expanded(nav: Any, docs: Path) -> Any:
    if isinstance(nav, str) and nav.endswith("/"):
        # The page that opens a folder comes first.
        pages = sorted((docs / nav).glob("*.md"), key=lambda path: (path.stem != "README", path))
        return [str(path.relative_to(docs)) for path in pages]
    if isinstance(nav, dict):
        return {title: _expanded(entry, docs) for title, entry in nav.items()}
    if isinstance(nav, list):
        found = (_expanded(entry, docs) for entry in nav)
        return [one for entry in found for one in (entry if isinstance(entry, list) else [entry])]
    return nav


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Have links that leave docs/ lead to the repository; give the glossary's rows anchors."""
    folder = Path("docs", page.file.src_uri).parent

    def lead(link: re.Match[str]) -> str:
        path = normpath(folder / link[1])
        if path.startswith("docs/"):
            return link[1]
        found = _ROOT / path
        if not found.exists():
            _LOG.warning("%s: there is no %s in the repository", page.file.src_uri, path)
        kind = "tree" if found.is_dir() else "blob"
        return f"{config.extra['repository']}/{kind}/{config.extra['revision']}/{path}"

    if page.file.src_uri == _GLOSSARY:
        markdown = _ROW.sub(_anchored, markdown)
    return _OUTSIDE.sub(lead, markdown)


def _anchored(row: re.Match[str]) -> str:
    return f'| <span id="{_anchor(row[1])}">{row[1]}</span>{row[2] or ""} | {row[3]} |'


def _anchor(word: str) -> str:
    return word.replace(" ", "-")


def on_page_content(content: str, *, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Have the first of each of the glossary's words lead to its row."""
    glossary = Path(config.docs_dir, _GLOSSARY)
    if page.file.src_uri == _GLOSSARY or not glossary.is_file():
        return content
    means = {word: text for word, _, text in _ROW.findall(glossary.read_text(encoding="utf-8"))}
    address = get_relative_url("glossary/", page.url)
    seen: set[str] = set()

    def lead(found: re.Match[str]) -> str:
        word = found[1]
        if word in seen:
            return found[0]
        seen.add(word)
        title = html.escape(re.sub(r"[`*]|\[|\]\([^)]*\)", "", means[word]))
        return f'<a class="word" href="{address}#{_anchor(word)}" title="{title}">{found[0]}</a>'

    words = re.compile(rf"\b({'|'.join(config.extra['glossary'])})s?\b")
    # Text and what is none, in turns.
    parts = _NO_TEXT.split(content)
    parts[::2] = [words.sub(lead, text) for text in parts[::2]]
    return "".join(parts)


def on_post_page(output: str, *, page: Page, **_: Any) -> str:
    """Load the library before the theme looks for it: the theme would get it from elsewhere."""
    if 'class="mermaid"' not in output:
        return output
    script = f'<script src="{get_relative_url(_LIBRARY, page.url)}"></script>'
    return output.replace("<head>", f"<head>{script}", 1)
