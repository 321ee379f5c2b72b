"""Fuzzes one target in this process: `python -m tests.fuzzing.engine TARGET [LIBFUZZER OPTION...]`.

Owns the instrumentation and the choice of mutations. Atheris, which is libFuzzer for Python, owns
everything else: which inputs are kept, the limits of time and memory, and the report. The options
and exit codes are libFuzzer's; `__main__` gives them.
"""

import logging
import random
import sys
import tempfile
from pathlib import Path

import atheris
import structlog

from tests.fuzzing.corpus import inputs_of
from tests.fuzzing.mutation import Mutator
from tests.fuzzing.targets import TARGETS, runner_of

#: The share of inputs that keep their form; the others are mutated byte by byte.
_IN_FORM = 0.7


def main(arguments: list[str]) -> None:
    """Fuzz until libFuzzer ends the process."""
    name, *options = arguments
    target = TARGETS[name]
    # Only our own code: what libraries and tests do is not what is fuzzed.
    with atheris.instrument_imports(include=["engine", "workbench"]):
        run = runner_of(name)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable()
    seeds = [path.read_bytes() for path in inputs_of(name)]
    mutator = Mutator(target.forms, seeds)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < _IN_FORM:
            mutated = mutator.mutated(data, rng)
            if mutated is not None and len(mutated) <= most:
                return mutated
        changed: bytes = atheris.Mutate(data, most)
        return changed

    with tempfile.TemporaryDirectory() as folder:
        words = Path(folder) / "words"
        words.write_text(dictionary(seeds))
        most = max(target.most_bytes, *map(len, seeds))
        flags = [f"-dict={words}", f"-max_len={most}", *options]
        # libFuzzer runs its first argument again, by a shell, when it merges.
        command = f"{sys.executable} -m tests.fuzzing.engine {name}"
        atheris.Setup([command, *flags], run, custom_mutator=mutate)
        atheris.Fuzz()


def dictionary(seeds: list[bytes]) -> str:
    """The words of *seeds* as a dictionary of libFuzzer."""
    words: set[bytes] = set()
    for seed in seeds:
        words.update(word for word in seed.split() if 1 < len(word) <= 40)
    lines = ("".join(f"\\x{byte:02x}" for byte in word) for word in sorted(words))
    return "".join(f'"{line}"\n' for line in lines)


if __name__ == "__main__":
    main(sys.argv[1:])
