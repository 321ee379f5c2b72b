"""Time zones by their IANA names, from the `tzdata` package: the same on every machine.

Owns where the data come from. `zoneinfo` alone would prefer the machine's, of whatever version, and
a slim image has none.
"""

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

UTC: Final = "UTC"

_WORD: Final = re.compile(r"[\w+-]+(?:/[\w+-]+)*", re.ASCII)


@functools.cache
def zone_names() -> frozenset[str]:
    """The names of all time zones, such as `Europe/Berlin`."""
    return frozenset((_data() / "zones").read_text(encoding="utf-8").split())


@functools.cache
def zone_of(name: str) -> "ZoneInfo":
    """The time zone *name*. Raises `ValueError` if there is none."""
    # Imported late: the check of a file on save needs no time zone, and most commands need none.
    from zoneinfo import ZoneInfo

    if name not in zone_names():  # names are paths, and users write them
        raise ValueError(f"no time zone `{name}`")
    with (_data() / "zoneinfo" / name).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def read_zones(text: str) -> None:
    """Read the time zones that *text* names, and UTC: `zone_of` needs no file for them later."""
    for name in {UTC, *_WORD.findall(text)} & zone_names():
        zone_of(name)


def _data() -> Path:
    import tzdata  # type: ignore[import-untyped]  # only its files are used

    return Path(tzdata.__file__).parent
