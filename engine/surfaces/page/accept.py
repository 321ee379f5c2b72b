"""Which form of an answer a client asked for, by its header `Accept`."""

from typing import Final, Literal

Form = Literal["json", "html", "stream"]

#: In the order of preference between equals: a program that says nothing gets JSON.
_FORMS: Final[tuple[tuple[str, Form], ...]] = (
    ("application/json", "json"),
    ("text/html", "html"),
    ("text/event-stream", "stream"),
)


def form_of(accept: str) -> Form:
    """The form that the client likes best; `json` if it names none that there is.

    A stream is asked for by naming it, whatever else is named: the extension of htmx that opens
    streams appends it to the types that it takes as well.
    """
    if "text/event-stream" in accept.lower():
        return "stream"
    liked = [(_quality(accept, media_type), form) for media_type, form in _FORMS]
    best = max(liked, key=lambda pair: pair[0])
    return best[1] if best[0] > 0 else "json"


def _quality(accept: str, media_type: str) -> float:
    """How much the client likes *media_type*, in 0..1; the most specific range decides."""
    main = media_type.partition("/")[0]
    found = dict(map(_parsed, accept.split(",")))
    for candidate in (media_type, f"{main}/*", "*/*"):
        if candidate in found:
            return found[candidate]
    return 0.0


def _parsed(text: str) -> tuple[str, float]:
    """A media range with its quality."""
    media_range, *parameters = (part.strip().lower() for part in text.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return media_range, min(1.0, max(0.0, float(value)))
            except ValueError:
                return media_range, 0.0
    return media_range, 1.0
