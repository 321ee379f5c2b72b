"""Answers as HTML: a whole page, or what of it changes.

Owns the environment of the templates. Everything that a template is given is escaped; none marks
anything as safe, so the text of a label, a name or a policy stays text; its control characters are
written out.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from engine.lib.printable import printable_lines
from engine.surfaces.page import nodes_view
from engine.surfaces.page.policies_view import anchor_of
from engine.surfaces.page.screens import NAVIGATION, Screen
from engine.surfaces.page.static_files import address_of
from engine.surfaces.page.words import FILTERS, seconds_between

_SCRIPTS: Final = ("htmx.min.js", "hx-sse.min.js", "hx-csp.min.js")
_CHART_SCRIPTS: Final = ("uPlot.iife.min.js",)
_OWN_SCRIPT: Final = "page.js"


def render_page(
    screen: Screen, answer: Any, *, asked: Mapping[str, str], command: str, address: str, nonce: str
) -> str:
    """The whole page of *screen*.

    Args:
        screen: Which.
        answer: A record of `engine.surfaces.live.answers`.
        asked: The query that was answered.
        command: That gets the same as JSON.
        address: Of this page within its host.
        nonce: Lets the page's own scripts run.
    """
    charts = _CHART_SCRIPTS if screen.has_charts else ()
    return (
        _environment()
        .get_template("base.html")
        .render(
            **_shown(screen, answer, asked),
            title=_title(screen, answer),
            command=command,
            address=address,
            nonce=nonce,
            scripts=(*_SCRIPTS, *charts, _OWN_SCRIPT),
            navigation=NAVIGATION,
        )
    )


def _title(screen: Screen, answer: Any) -> str:
    """What the browser's tab is named: the object, if the screen is about one."""
    node, queue = getattr(answer, "node", ""), getattr(answer, "queue", "")
    names = (getattr(answer, "pod", ""), getattr(node, "name", ""), getattr(queue, "path", ""))
    return next(filter(None, names), screen.title)


def render_content(screen: Screen, answer: Any, asked: Mapping[str, str]) -> str:
    """What of the page of *screen* changes with the answer."""
    return _environment().get_template(screen.template).render(**_shown(screen, answer, asked))


def _shown(screen: Screen, answer: Any, asked: Mapping[str, str]) -> dict[str, Any]:
    view = screen.make_view(answer, asked)
    return {"screen": screen, "answer": answer, "asked": asked, "view": view}


def _printed(value: Any) -> Any:
    """*value* as it is put on the page; markup is that of our own macros."""
    return printable_lines(value) if type(value) is str else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("engine.surfaces.page"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_printed,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(
        anchor_of=anchor_of,
        between=seconds_between,
        is_closed=nodes_view.is_closed,
        static=address_of,
        step=nodes_view.step,
        steps=nodes_view.STEPS,
    )
    return environment
