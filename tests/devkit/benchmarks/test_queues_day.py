"""The day of four tenants: the figures in the documentation are those of a run."""

from collections import Counter
from typing import Final
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from devkit.benchmarks import openb_day
from devkit.benchmarks.bench_queues import CHART, DOCUMENT, WRITTEN, cells_of, drawn, main, table
from devkit.benchmarks.queues_day import (
    GPU,
    PACKS,
    SYNTHETIC,
    WEIGHTS,
    day,
    objects,
    run_day,
)


def _rows_of_docs(day: str = "synthetic") -> dict[str, list[str]]:
    text = DOCUMENT.read_text().partition(f"<!-- figures: queues_day {day} -->")[2]
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


@pytest.mark.slow("simulates the trace")
@pytest.mark.long("several minutes each")
@pytest.mark.parametrize("pack", WRITTEN["openb"])
@pytest.mark.timeout(1800)
def test_the_figures_of_the_trace_are_those_of_a_run(pack: str) -> None:
    """If they are not, and the change is meant: `make bench-queues` with `--day openb --write`."""
    tenants = openb_day.OPENB
    made = run_day(pack, tenants=tenants)
    assert cells_of(made.row()) == _rows_of_docs("openb")[pack]
    assert made.curves.capacity == tenants.gpus * tenants.unit


def test_the_day_of_the_trace_has_contention_and_tenants_of_all_sizes() -> None:
    tenants = openb_day.OPENB
    arrivals = tenants.workload(1).arrivals
    assert len(arrivals) > 2_500
    assert [one.at for one in arrivals] == sorted(one.at for one in arrivals)
    assert 0 <= arrivals[0].at <= arrivals[-1].at <= tenants.seconds
    room = tenants.gpus * tenants.unit * tenants.seconds
    wanted = sum(one.pod.requests[tenants.resource] * (one.runs or 0) for one in arrivals)
    assert 1.25 < wanted / room < 1.4
    counts = Counter(one.pod.namespace for one in arrivals)
    assert list(counts) != list(tenants.weights), "they come in no order of tenants"
    for rank, name in enumerate(tenants.weights, 1):
        assert counts[name] == pytest.approx(counts["t1"] / rank, rel=0.15)
    others = Counter(one.pod.namespace for one in tenants.workload(2).arrivals)
    assert counts != others, "another seed gives them to other tenants"


def test_the_documentation_has_every_pack_and_its_chart() -> None:
    for name, packs in WRITTEN.items():
        assert tuple(_rows_of_docs(name)) == packs
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
    assert {one["kind"] for one in objects(GPU, 64, WEIGHTS)} == {
        "Queue",
        "Cohort",
        "ClusterQueue",
        "LocalQueue",
    }
    assert {path.rpartition("/")[2] for path in WEIGHTS} == {
        a.pod.namespace for a in first.arrivals
    }


def test_a_table_of_a_part_is_not_written() -> None:
    result = CliRunner().invoke(main, ["--packs=drf", "--write"])
    assert result.exit_code == 2
    assert "--write is for --packs none,drf,proportion,kueue_fair and" in result.output
    wrong = CliRunner().invoke(main, ["--packs=fair"])
    assert "want one of none, drf, proportion, kueue_fair, got `fair`" in wrong.output
    assert table([], SYNTHETIC).count("|") == 12
