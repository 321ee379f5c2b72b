"""The day of four tenants: the figures in the documentation are those of a run."""

from typing import Final
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from devkit.benchmarks.bench_queues import CHART, DOCUMENT, cells_of, drawn, main, table
from devkit.benchmarks.queues_day import GPU, PACKS, WEIGHTS, day, objects, run_day


def _rows_of_docs() -> dict[str, list[str]]:
    text = DOCUMENT.read_text().partition("<!-- figures: queues_day -->")[2]
    lines = text.partition("<!-- end of figures -->")[0].strip().splitlines()[2:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: row for row in rows}


#: These ask so often who gives back that four hours take two minutes.
_ASKING: Final = ("drf", "kueue_fair")


@pytest.mark.slow("simulates four hours")
@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(pack, marks=pytest.mark.long("two minutes")) if pack in _ASKING else pack
        for pack in PACKS
    ],
)
@pytest.mark.timeout(900)
def test_the_figures_of_the_documentation_are_those_of_a_run(pack: str) -> None:
    """If they are not, and the change is meant: `make bench-queues ARGS=--write`."""
    made = run_day(pack)
    assert cells_of(made.row()) == _rows_of_docs()[pack]
    # All there is was used, or all that was wanted, and no more.
    for place in range(len(made.curves.times)):
        assert sum(used[place] for used in made.curves.used.values()) <= made.curves.capacity
        assert sum(d[place] for d in made.curves.deserved.values()) <= made.curves.capacity
    assert made.curves.capacity == 64
    panel = ElementTree.fromstring(drawn([made]))
    assert len(panel.findall(".//{*}polygon")) == len(WEIGHTS)


def test_the_documentation_has_every_pack_and_its_chart() -> None:
    assert list(_rows_of_docs()) == list(PACKS)
    titles = [
        one.text or "" for one in ElementTree.fromstring(CHART.read_text()).iter() if one.text
    ]
    rows = _rows_of_docs()
    for pack in PACKS:
        assert any(
            title.startswith(f"{pack}: ") and title.endswith(f"share error {rows[pack][1]}")
            for title in titles
        ), pack
    assert len(CHART.read_bytes()) < 300_000


def test_every_pack_sees_the_same_day() -> None:
    first, again = day(), day()
    assert [(a.at, a.pod.key, a.runs) for a in first.arrivals] == [
        (a.at, a.pod.key, a.runs) for a in again.arrivals
    ]
    wanted = sum(a.pod.requests[GPU] * (a.runs or 0) for a in first.arrivals)
    assert wanted > 1.2 * 64 * 4 * 3600, "there is contention"
    assert {one["kind"] for one in objects()} == {"Queue", "Cohort", "ClusterQueue", "LocalQueue"}
    assert {path.rpartition("/")[2] for path in WEIGHTS} == {
        a.pod.namespace for a in first.arrivals
    }


def test_a_table_of_a_part_is_not_written() -> None:
    result = CliRunner().invoke(main, ["--packs=drf", "--write"])
    assert result.exit_code == 2
    assert "--write is for all packs" in result.output
    wrong = CliRunner().invoke(main, ["--packs=fair"])
    assert "want one of none, drf, proportion, kueue_fair, got `fair`" in wrong.output
    assert table([]).count("|") == 12
