"""Fuzzes one target after the other: `python -m tests.fuzzing [TARGET...] [--minutes N]`.

Owns the processes of `engine`, what is shown of them, and where inputs go. Inputs that reach new
code are kept outside the checkout, and the next run goes on from them; `--merge` takes the smallest
of them into the repository's corpus. One that fails is saved, with how to run it again.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.fuzzing.corpus import CORPORA, corpus_of

ROOT: Final = Path(__file__).resolve().parents[2]
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
_KEPT: Final = _CACHE / "starsched" / "fuzzing"
#: A line of libFuzzer: how many inputs, and what they reached.
_STATUS: Final = re.compile(
    r"#(?P<inputs>\d+)\s+\w+\s+cov: (?P<edges>\d+).* corp: (?P<corpus>\d+)/\S+"
    r".* exec/s: (?P<rate>\d+) rss: (?P<memory>\d+)Mb"
)
_SHOWN_EVERY: Final = 10.0
#: One input may take so many seconds, on a machine that others use too, and so many megabytes.
_MOST_SECONDS: Final = 20
_MOST_MEGABYTES: Final = 2_048
_LAST_LINES: Final = 80
#: The largest input that is taken into the repository.
_MERGED_BYTES: Final = 1_000


@dataclass(frozen=True)
class Status:
    """How far a run has come."""

    inputs: int = 0
    edges: int = 0
    corpus: int = 0
    rate: int = 0
    memory: int = 0

    def __str__(self) -> str:
        return (
            f"{self.inputs:,} inputs, {self.rate:,}/s, {self.edges:,} edges, "
            f"{self.corpus:,} in the corpus, {self.memory:,} MB"
        )


def status_in(line: str) -> Status | None:
    """The status that a line of libFuzzer's reports; None if it reports none."""
    found = _STATUS.match(line)
    return None if found is None else Status(**{n: int(t) for n, t in found.groupdict().items()})


def fuzz(target: str, minutes: float) -> bool:
    """Fuzz *target* for so long, and show how it goes. False if an input failed."""
    kept, found = _KEPT / target, _KEPT / "found"
    for folder in (kept, found):
        folder.mkdir(parents=True, exist_ok=True)
    started, cpu_before = time.monotonic(), _cpu_seconds()
    status, shown_at = Status(), 0.0
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with _start(
        target,
        f"-max_total_time={max(1, round(60 * minutes))}",
        f"-timeout={_MOST_SECONDS}",
        f"-rss_limit_mb={_MOST_MEGABYTES}",
        f"-artifact_prefix={found / target}-",
        "-reload=0",
        str(kept),
        str(corpus_of(target)),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            status = status_in(line) or status
            if time.monotonic() - shown_at >= _SHOWN_EVERY:
                shown_at = time.monotonic()
                print(f"{target:14} {_clock(shown_at - started)}  {status}", flush=True)
    cpu = _cpu_seconds() - cpu_before
    print(
        f"{target:14} {_clock(time.monotonic() - started)}  {status}, {cpu:.0f} s of CPU",
        flush=True,
    )
    failed = process.returncode != 0
    if failed:
        _report(target, "".join(last))
    return not failed


def _report(target: str, output: str) -> None:
    """Show what failed, and how to run it again."""
    print(output, end="", file=sys.stderr)
    for path in re.findall(r"Test unit written to (\S+)", output):
        print(f"again: make fuzz TARGET={target} INPUT={path}", file=sys.stderr)
    folder = corpus_of(target).relative_to(ROOT)
    print(f"once it is mended, keep the input as {folder}/found-NAME", file=sys.stderr)


def run_again(target: str, path: Path) -> bool:
    """Run one input. False if it fails."""
    return subprocess.run(_command(target, str(path)), cwd=ROOT, check=False).returncode == 0


def merge(target: str) -> None:
    """Take into the repository's corpus a few small inputs that reach code which it does not."""
    # Inputs that only reach something more often would be ten times as many.
    options = ("-set_cover_merge=1", "-use_counters=0", f"-max_len={_MERGED_BYTES}")
    with _start(target, *options, str(corpus_of(target)), str(_KEPT / target)) as process:
        process.communicate()
    size = sum(path.stat().st_size for path in CORPORA.rglob("*") if path.is_file())
    print(f"{target:14} merged; all corpora have {size:,} bytes")


def _command(target: str, *options: str) -> list[str]:
    return [sys.executable, "-m", "tests.fuzzing.engine", target, *options]


def _start(target: str, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        _command(target, *options),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def _cpu_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes:3}:{rest:02}"


def main() -> int:
    """Fuzz, and return the exit code: 1 if an input failed."""
    names = sorted(path.name for path in CORPORA.iterdir() if path.is_dir())
    parser = argparse.ArgumentParser(prog="fuzzing", description="fuzz the readers of input")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each target (default: 1)")
    parser.add_argument("--input", type=Path, help="run this one input of one target again")
    parser.add_argument("--merge", action="store_true", help="extend the corpora by what was found")
    arguments = parser.parse_args()
    targets = arguments.targets or names
    if unknown := set(targets) - set(names):
        parser.error(f"want targets of {', '.join(names)}, got {', '.join(sorted(unknown))}")
    if arguments.input is not None:
        if len(targets) != 1:
            parser.error("want one target for the input")
        return 0 if run_again(targets[0], arguments.input) else 1
    if arguments.merge:
        for target in targets:
            merge(target)
        return 0
    survived = [fuzz(target, arguments.minutes) for target in targets]  # all of them, in any case
    return 0 if all(survived) else 1


if __name__ == "__main__":
    sys.exit(main())
