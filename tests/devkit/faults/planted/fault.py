"""What a planted fault is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[4]


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A small mistake in one module of the scheduler.

    Attributes:
        name: What the runner calls it.
        path: The module's file, from the root of the checkout.
        text: The source that is replaced; it occurs once in the file.
        instead: What the mistake has in its place.
        harm: What a user would notice.
        why_missed: Why no simulated world can show it; "" if one should.
    """

    name: str
    path: str
    text: str
    instead: str
    harm: str
    why_missed: str = ""

    @property
    def module(self) -> str:
        """The module's name."""
        return self.path.removesuffix(".py").replace("/", ".")

    def source(self) -> str:
        """The module's source with the mistake. Raises `ValueError` if its place is not found."""
        source = (ROOT / self.path).read_text()
        if (count := source.count(self.text)) != 1:
            raise ValueError(f"{self.name}: want its text once in `{self.path}`, found it {count}x")
        return source.replace(self.text, self.instead)
