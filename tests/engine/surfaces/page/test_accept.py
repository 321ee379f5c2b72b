"""Which form of an answer a client gets."""

import pytest

from engine.surfaces.page.accept import form_of

_CHROMIUM = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "want"),
    [
        pytest.param("", "json", id="nothing said"),
        pytest.param("*/*", "json", id="curl"),
        pytest.param(_CHROMIUM, "html", id="a browser"),
        pytest.param("application/json", "json", id="json"),
        pytest.param("application/json, text/plain, */*", "json", id="a library"),
        pytest.param("text/html;q=0.5, application/json;q=0.9", "json", id="json is liked better"),
        pytest.param("text/html;q=0.9, application/json;q=0.5", "html", id="html is liked better"),
        pytest.param("text/*", "html", id="any text"),
        pytest.param("*/*, application/json;q=0", "html", id="anything but json"),
        pytest.param("TEXT/HTML", "html", id="case does not count"),
        pytest.param("text/event-stream", "stream", id="a stream"),
        pytest.param("text/html, text/event-stream", "stream", id="the extension of htmx"),
        pytest.param("image/png", "json", id="nothing that there is"),
        pytest.param("text/html;q=much", "json", id="a quality that is no number"),
        pytest.param(";;,,q=", "json", id="nonsense"),
    ],
)
def test_the_form_that_is_liked_best(accept: str, want: str) -> None:
    assert form_of(accept) == want
