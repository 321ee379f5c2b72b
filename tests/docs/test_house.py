"""The figure of the house is what the import contracts say."""

from pathlib import Path

from devkit.tools import house

_MOST_FLOORS = 10


def test_the_figure_is_what_the_contracts_say() -> None:
    assert house.PAGE.read_text(encoding="utf-8") == house.page(), "run `make docs`"


def test_the_house_has_at_most_ten_floors() -> None:
    figure = house.page().partition(house.BEGIN)[2].partition("```\n")[0]
    _, _, engine = figure.partition("\nengine")
    assert 1 < len(engine.splitlines()) <= _MOST_FLOORS + 2  # two of them go on in a second line


def test_every_folder_of_the_scheduler_is_on_a_floor() -> None:
    figure = house.page().partition(house.BEGIN)[2].partition(house.END)[0]
    named = {Path(one) for one in figure.split()}
    engine = house.ROOT / "engine"
    folders = {path.parent.relative_to(engine) for path in engine.rglob("__init__.py")}
    lost = [
        str(folder)
        for folder in folders - {Path()}
        if not any(one == folder or one in folder.parents or folder in one.parents for one in named)
    ]
    assert not lost
