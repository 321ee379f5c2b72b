"""The files that a browser loads."""

import hashlib
from importlib import resources
from typing import Final

import aiohttp
import pytest

from engine.surfaces.page.static_files import libraries, static_files
from tests.engine.surfaces.page.site import Site

#: The files of the folder that are our own.
_OURS: Final = {"page.css", "page.js", "mark.svg", "libraries.toml"}
_LICENCES: Final = {"0BSD": "Zero-Clause BSD", "MIT": "MIT License"}
_FOLDER: Final = resources.files("engine.surfaces.page") / "static"


@pytest.mark.parametrize("library", libraries(), ids=lambda library: library.file)
def test_a_library_is_what_the_manifest_says(library: object) -> None:
    found = next(one for one in libraries() if one == library)
    assert hashlib.sha256((_FOLDER / found.file).read_bytes()).hexdigest() == found.sha256
    assert _LICENCES[found.licence] in (_FOLDER / found.licence_file).read_text(encoding="utf-8")


def test_every_file_is_ours_or_in_the_manifest() -> None:
    known = {one.file for one in libraries()} | {one.licence_file for one in libraries()}
    assert {entry.name for entry in _FOLDER.iterdir()} == known | _OURS


def test_the_version_of_htmx_is_the_one_in_the_manifest() -> None:
    (htmx,) = [one for one in libraries() if one.file == "htmx.min.js"]
    assert f'version="{htmx.version}"' in (_FOLDER / htmx.file).read_text(encoding="utf-8")


def test_all_files_together_are_small() -> None:
    assert sum(len(file.body) for file in static_files().values()) < 150_000


async def test_a_file_is_kept_for_good_under_its_hash_alone(site: Site) -> None:
    file = static_files()["page.js"]
    async with aiohttp.ClientSession(site.url) as session:
        async with session.get(file.address) as response:
            assert await response.read() == file.body
            assert "immutable" in response.headers["Cache-Control"]
        for other in ("/static/0123456789ab/page.js", "/static/x/libraries.toml", "/static/x/.."):
            async with session.get(other) as response:
                assert response.status == 404
