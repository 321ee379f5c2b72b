"""The coverage of `starsched test`: prints it, writes it to files, compares it with a limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from engine.surfaces.cli.input_error import input_errors
from engine.surfaces.cli.output_file import write_file
from workbench.coverage.coverage import FileCoverage, percent
from workbench.coverage.reports import as_html, as_lcov, as_text


@dataclass(frozen=True, slots=True)
class CoverageOutput:
    """How coverage is reported, from the options.

    Attributes:
        is_printed: Whether the table is part of the text output.
        html_file, lcov_file: Files to write.
        fail_under: The smallest sufficient share of lines, 0..100.
        with_libraries: Whether the share counts shipped libraries.
    """

    is_printed: bool = False
    html_file: Path | None = None
    lcov_file: Path | None = None
    fail_under: float | None = None
    with_libraries: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether lines have to be counted at all."""
        files = self.html_file or self.lcov_file
        return bool(self.is_printed or files or self.fail_under is not None)

    def write(self, reached: Sequence[FileCoverage]) -> None:
        """Write the requested files. Raises `InputError` if that is not possible."""
        with input_errors():
            if self.html_file is not None:
                page = as_html(reached, is_whole=self.with_libraries)
                write_file(self.html_file, page)
            if self.lcov_file is not None:
                write_file(self.lcov_file, as_lcov(reached))

    def print(self, reached: Sequence[FileCoverage]) -> None:
        """Print the table if it was requested and there is one; broken policies have none."""
        if self.is_printed and reached:
            click.echo(as_text(reached, is_whole=self.with_libraries))

    def is_enough(self, reached: Sequence[FileCoverage]) -> bool:
        """Whether *reached* satisfies the limit; prints a message to standard error if not."""
        share = percent(one for one in reached if self.with_libraries or not one.is_shipped)
        if self.fail_under is None or share >= self.fail_under:
            return True
        click.echo(f"coverage is {share:.1f}%, want at least {self.fail_under:g}%", err=True)
        return False
