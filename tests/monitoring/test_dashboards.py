"""Dashboards are what the tables of panels say, and no panel of them is empty."""

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from devkit.tools import monitoring
from tests.monitoring.world import ROOT, World, has_data

SLOW = pytest.mark.slow("runs a scheduler and Prometheus")

MADE = [monitoring.render(dashboard) for dashboard in monitoring.DASHBOARDS.values()]
#: What Grafana puts in place of variables, if a reader chooses nothing.
CHOSEN = {
    "$__rate_interval": "2m",
    "$__range": "1h",
    "$cluster": ".*",
    "$job": "kube-scheduler",
    "$instance": "127.0.0.1:.*",
}


def chosen(expression: str) -> str:
    for variable, value in CHOSEN.items():
        expression = expression.replace(variable, value)
    return expression


EXPRESSIONS = [
    pytest.param(chosen(expression), id=f"{name.partition('.')[0]}: {title} {number}")
    for name, dashboard in monitoring.DASHBOARDS.items()
    for number, (title, expression) in enumerate(monitoring.expressions(dashboard))
]


@SLOW
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_no_panel_is_empty(monitored: World, expression: str) -> None:
    assert has_data(monitored.prometheus.query(expression, monitored.ended_at)), expression


@SLOW
def test_edits_are_marked_and_variables_have_values(monitored: World) -> None:
    for made in MADE:
        (edits,) = made["annotations"]["list"]
        ever = f"max_over_time(({chosen(edits['expr'])})[10m:5s])"
        assert has_data(monitored.prometheus.query(ever, monitored.ended_at))
        labels = {
            variable["definition"].rpartition(", ")[2].rstrip(")")
            for variable in made["templating"]["list"]
            if variable["type"] == "query"
        }
        (series,) = monitored.prometheus.query(monitoring.KNOWN_BY, monitored.ended_at)
        assert labels - {"cluster"} <= series["metric"].keys()


def test_what_is_made_is_up_to_date() -> None:
    assert monitoring.stale() == [], "run `make monitoring`"


def test_a_dashboard_that_was_edited_by_hand_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for path, text in monitoring.files().items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, "utf-8")
    (tmp_path / monitoring.ALERTS).write_text((ROOT / monitoring.ALERTS).read_text("utf-8"))
    monkeypatch.setattr(monitoring, "ROOT", tmp_path)
    assert monitoring.stale() == []
    overview = monitoring.FOLDER / "dashboards" / "overview.json"
    (tmp_path / overview).write_text("{}")
    (tmp_path / overview.parent / "another.json").write_text("{}")
    assert monitoring.stale() == [overview.with_name("another.json"), overview]


def data_sources(found: Any) -> list[Any]:
    """Every data source that something within *found* names."""
    if isinstance(found, dict):
        here = [found["datasource"]] if "datasource" in found else []
        return [*here, *itertools.chain(*map(data_sources, found.values()))]
    return [*itertools.chain(*map(data_sources, found))] if isinstance(found, list) else []


@pytest.mark.parametrize("made", MADE, ids=lambda made: made["uid"])
def test_a_dashboard_names_no_data_source_of_its_own(made: dict[str, Any]) -> None:
    """Where there is none it opens all the same: one that is named and missing is an error."""
    named = data_sources(made)
    assert len(named) > 20
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in named)
    variable = made["templating"]["list"][0]
    assert (variable["type"], variable["query"], variable["current"]) == (
        "datasource",
        "prometheus",
        {},
    )
    assert "__inputs" not in made


@pytest.mark.parametrize("made", MADE, ids=lambda made: made["uid"])
def test_panels_do_not_overlap_and_have_ids_of_their_own(made: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in made["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in made["panels"]]
    assert len({*ids}) == len(ids)


@pytest.mark.parametrize("made", MADE, ids=lambda made: made["uid"])
def test_every_series_is_selected_by_the_variables(made: dict[str, Any]) -> None:
    written = [t["expr"] for p in made["panels"] for t in p.get("targets", ())]
    expressions = [re.sub(r"\bby \([^)]*\)", "", text) for text in written]
    metric = r"\b(?:scheduler|starsched|rest_client|leader_election|process|go)_\w+"
    found = [one for text in expressions for one in re.findall(metric + r"(?:\{[^}]*\})?", text)]
    assert len(found) > 25
    assert [one for one in found if monitoring.SELECTED not in one] == []


def test_values_that_are_no_numbers_are_no_data() -> None:
    assert not has_data([])
    assert not has_data([{"metric": {}, "value": [1.0, str(math.nan)]}])
    assert has_data([{"metric": {}, "value": [1.0, "0"]}])


def test_dashboards_are_json_that_ends_with_a_line() -> None:
    for name in monitoring.DASHBOARDS:
        text = (ROOT / monitoring.FOLDER / "dashboards" / name).read_text("utf-8")
        assert text.endswith("}\n")
        assert json.loads(text)["uid"]
