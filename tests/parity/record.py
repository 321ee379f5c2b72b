"""Records answers of the oracle: `python -m tests.parity.record` writes `tests/data/conformance`.

Owns which files are recorded from which themes and seeds, and asking again for the cases that were
found once. Whoever moves to another version of Kubernetes runs it, and reads the difference.
"""

import json
from pathlib import Path
from typing import Any, Final

from tests.parity import generator
from tests.parity.oracle import Oracle

Plain = dict[str, Any]

DATA: Final = Path(__file__).parents[1] / "data" / "conformance"
SEED: Final = 20261137
PODS: Final = 5
SCENARIOS: Final = 40
#: File -> the theme that its 200 answers are of.
FILES: Final = {
    "resizes": "resize",
    "image_volumes": "imagevolumes",
    "namespaces": "namespaces",
    "capacities": "capacities",
    "missing_drivers": "drivers",
    "budgets": "budgets",
    "device_rules": "rules",
    "counters": "counters",
    "shares": "shares",
    "profiles": "profiles",
    "everything": "everything",
}
FOUND: Final = "found"


def main() -> None:
    """Write every file of `FILES`, and the cases that were found once, with their answers."""
    with Oracle() as oracle:
        for name, theme in FILES.items():
            _write(name, oracle, [_scenario(index, theme) for index in range(SCENARIOS)])
        lines = (DATA / f"{FOUND}.jsonl").read_text("utf-8").splitlines()
        _write(FOUND, oracle, [json.loads(line) for line in lines])


def _scenario(index: int, theme: str) -> Plain:
    made = generator.scenario(SEED, index, theme)
    return {**made, "incoming": made["incoming"][:PODS]}


def _write(name: str, oracle: Oracle, scenarios: list[Plain]) -> None:
    answered = list(oracle.ask(scenarios))
    for one in answered:
        if "error" in one or "invalid" in one:
            raise SystemExit(f"{one['id']}: {one.get('error') or one['invalid']}")
    # In the order of the question: what was recorded before stays where it is.
    ordered = [
        {**{key: got[key] for key in asked if key != "answers"}, "answers": got["answers"]}
        for asked, got in zip(scenarios, answered, strict=True)
    ]
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in ordered)
    (DATA / f"{name}.jsonl").write_text(text, encoding="utf-8")
    count = sum(len(one["answers"]) for one in ordered)
    print(f"{name}: {count} answers")


if __name__ == "__main__":
    main()
