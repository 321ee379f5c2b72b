"""Decision logs, as `replay` and `simulate` read them; compressed ones too."""

from collections import OrderedDict
from typing import Final

from engine.policy.errors import PolicyErrors
from engine.policy.evaluator import InProcessEvaluator, Program
from tests.fuzzing.targets.policies import metrics
from tests.fuzzing.targets.scratch import file_of
from workbench.replay import replay
from workbench.replay.decision_log import Damage, LogError, is_log, read_log
from workbench.replay.replay import Replayer

#: Loaded policies, by their texts: to load them takes longer than to read a log.
_loaded: OrderedDict[object, InProcessEvaluator] = OrderedDict()
_MOST_LOADED: Final = 20


def _evaluator(program: Program) -> InProcessEvaluator:
    key = (tuple(sorted(program.files.items())), repr(program.instances), program.limits)
    if key not in _loaded:
        _loaded[key] = InProcessEvaluator(program)
        if len(_loaded) > _MOST_LOADED:
            _loaded.popitem(last=False)
    return _loaded[key]


vars(replay)["InProcessEvaluator"] = _evaluator
vars(replay)["Metrics"] = lambda _registry: metrics()


def run(data: bytes) -> None:
    """Replay *data*."""
    path = file_of(data, "decisions-000001.jsonl")
    assert is_log(path)
    damage = Damage()
    replayer = Replayer()
    try:
        for outcome in replayer.outcomes(read_log(path, damage)):
            assert outcome.is_same or outcome.recorded != outcome.replayed or outcome.notes
    except (LogError, PolicyErrors) as error:
        str(error)
    finally:
        replayer.close()
