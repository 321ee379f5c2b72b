"""The recorded questions of kube-scheduler, every call of them asked both ways."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from engine.policy.evaluator import Call, PolicyFailure, Program, Verdict, program_image
from engine.policy.sandbox.protocol import decode_answer
from engine.policy.sandbox.worker import PolicyWorker
from workbench.conformance import conformance
from workbench.conformance.conformance import CaseRunner, read_scenarios

DATA = Path(__file__).parents[3] / "data" / "conformance"


class BothEvaluator:
    """Asks the interpreter and the translation, and wants one answer."""

    translated = 0
    interpreted = 0

    def __init__(self, program: Program) -> None:
        image = program_image(program)
        self._worker = PolicyWorker(image)
        self._plain = PolicyWorker(image, translates=False)

    def close(self) -> None:
        pass

    def evaluate(self, calls: Sequence[Call]) -> list[Sequence[Verdict | PolicyFailure]]:
        answers: list[Sequence[Verdict | PolicyFailure]] = []
        for call in calls:
            want = decode_answer(self._plain.evaluate(call))
            translations = self._worker.translations
            assert translations is not None
            answer = translations.answer(call)
            if answer is None:
                BothEvaluator.interpreted += 1
            else:
                BothEvaluator.translated += 1
                assert repr(decode_answer(answer)) == repr(want), call
            answers.append(want)
        return answers


@pytest.mark.slow("compares much")
@pytest.mark.parametrize("name", ["mixed", "spread", "interpod", "scoring"])
def test_recorded_questions_are_answered_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "InProcessEvaluator", BothEvaluator)
    BothEvaluator.translated = BothEvaluator.interpreted = 0
    runner = CaseRunner()
    for scenario in list(read_scenarios(DATA / f"{name}.jsonl"))[:40]:
        runner.run(scenario)
    assert BothEvaluator.translated > 400
