"""`python -m tests.mutation GROUP...`: random mutants of folders, and which of them survive.

A group is a folder or a file of `engine`, without `.py`; `rollout/saved` stands for all files that
begin so. Exits with 1 if fewer than nine in ten are killed, or a survivor is not in
`explained.toml`.
"""

import argparse
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.mutation.run import MutationRun, Outcome

_ROOT: Final = Path(__file__).resolve().parents[2]
_EXPLAINED: Final = Path(__file__).with_name("explained.toml")
GROUPS: Final = (
    "core/kernel",
    "core/queueing",
    "core/caching",
    "io/leader_election",
    "rollout/saved",
)
WANTED: Final = 0.9


def files_of(group: str) -> list[str]:
    """The files of *group*, from the root of the checkout. Raises `SystemExit` if there is none."""
    engine = _ROOT / "engine"
    found = sorted((engine / group).rglob("*.py")) or sorted(engine.glob(f"{group}*.py"))
    if not found:
        sys.exit(f"no files engine/{group}*: want a folder or a file of engine, without .py")
    return [str(path.relative_to(_ROOT)) for path in found if path.name != "__init__.py"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("groups", nargs="*", default=GROUPS, metavar="GROUP")
    parser.add_argument("--count", type=int, default=100, help="mutants for each group")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", help="the mutants whose name contains this, in place of random ones"
    )
    parser.add_argument("--tests", nargs="+", default=["tests"], help="tests to choose from")
    parser.add_argument(
        "--most-seconds", type=float, default=60.0, help="CPU time of the tests for one mutant"
    )
    options = parser.parse_args()
    explained: dict[str, str] = tomllib.loads(_EXPLAINED.read_text())["mutants"]
    done = 0

    def show(group: str, outcome: Outcome, total: int) -> None:
        nonlocal done
        done += 1
        if outcome.fate in ("survived", "not reached"):
            mutant = outcome.mutant
            why = explained.get(mutant.key)
            tests = f"{outcome.tests} tests" + f", {outcome.left_out} left out" * (
                outcome.left_out > 0
            )
            print(f"\n{done}/{total} {group}: {outcome.fate} ({tests})", flush=True)
            print(f"  {mutant.path}:{mutant.line} {mutant.function}")
            print(f"  - {mutant.before}\n  + {mutant.after or '(nothing)'}")
            if why:
                print(f"  explained: {why}")
        else:
            print(".", end="", flush=True)

    run = MutationRun(
        {group: files_of(group) for group in options.groups},
        count=options.count,
        seed=options.seed,
        only=options.only,
        most_seconds=options.most_seconds,
        on_outcome=show,
    )
    status = pytest.main(
        ["-q", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", *options.tests], plugins=[run]
    )
    print()
    for test in run.broken:
        print(f"fails without any change, left out: {test}")
    return int(status) or _summary(run, explained)


def _summary(run: MutationRun, explained: dict[str, str]) -> int:
    is_good = bool(run.outcomes)
    for group, outcomes in run.outcomes.items():
        alive = [one for one in outcomes if one.fate in ("survived", "not reached")]
        open_ones = [one for one in alive if one.mutant.key not in explained]
        killed = len(outcomes) - len(alive)
        share = killed / len(outcomes)
        print(
            f"{group}: {killed} of {len(outcomes)} killed ({share:.0%}), "
            f"{len(alive)} survived, {len(alive) - len(open_ones)} of them explained"
        )
        is_good &= share >= WANTED and not open_ones
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
