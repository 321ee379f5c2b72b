"""A hook of queues is given what its own text reads, with all that it calls, and nothing else."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from engine.core.caching.cache import Cache
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.core.scheduling.tree_hooks import Giver, QueueView, Request
from engine.core.scheduling.tree_shares import TreeShares
from engine.core.scheduling.tree_trial import failures_in_tree
from engine.core.sharing.sums import QueueSums
from engine.core.sharing.tree import build_tree
from engine.language.tree_hooks import ALL_QUEUES
from engine.policy.bundle import Bundle, build_bundle
from engine.policy.evaluator import Call, InProcessEvaluator
from tests.engine.core.kernel.queue_world import tree_files

POLICY = '''"""Turns by use, and who gives back by another rule.

Hooks: queue_of, turn_key, reclaim, giver_key.
"""

load("@std/amounts.star", "dominant", more = "plus")

tree = queue_attributes(weight = 1, tier = "")

_BY_TIER = {"gold": lambda queue: queue.requested}

def queue_of(pod):
    return pod.labels.get("queue")

def _used(queue):
    return more(queue.allocated, {})

def turn_key(queue, total):
    return dominant(_used(queue), total, queue.weight)

def reclaim(taker, victim):
    return 0 if taker.queue.path < victim.queue.path else None

def giver_key(queue):
    return [len(getattr(queue, "share")), len(_BY_TIER["gold"](queue))]
'''
FIELDS = {"allocated", "path", "requested", "share", "tier", "weight"}


def test_each_hook_reads_its_own_and_that_of_what_it_calls() -> None:
    tree = build_bundle(tree_files(POLICY, queues={"a": {}}), None).queue_tree
    assert tree is not None
    read = {hook: FIELDS & names for hook, names in tree.mentioned.items()}
    assert read == {
        "queue_of": set(),
        "turn_key": {"allocated", "weight"},
        "reclaim": {"path"},
        "giver_key": {"share", "requested"},
    }
    assert tree.mentions("share")
    assert not tree.mentions("tier")


def test_a_text_with_many_names_in_one_statement_is_read_once() -> None:
    """Each name of the statement had all of it gone through again: minutes for 30,000 names."""
    names = ", ".join(f"n{number} = 1" for number in range(30_000))
    large = POLICY.replace("_BY_TIER = {", f"struct({names})\n\n_BY_TIER = {{")
    before = time.process_time()
    tree = build_bundle(tree_files(large, queues={"a": {}}), None).queue_tree
    assert time.process_time() - before < 20
    assert tree is not None
    assert FIELDS & tree.mentioned["reclaim"] == {"path"}


class _Asking(InProcessEvaluator):
    """Keeps what it is asked."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle.program)
        self.questions: list[bytes] = []
        self.round_trips = 0

    def evaluate(self, calls: Sequence[Call]) -> list[Any]:
        self.round_trips += 1
        self.questions += [call.extra for call in calls]
        return super().evaluate(calls)


OF_A_WHOLE_PATH = '''"""Reads the queues of who takes and of who gives in every way.

Hooks: queue_of, reclaim.
"""

def queue_of(pod):
    return pod.labels.get("queue")

def _seen(side, line):
    upper = [above.path for queue in line for above in queue.above]
    return side.branch.path + str(len(side.queues)) + side.queue.path + str(upper)

def reclaim(taker, victim):
    mine = _seen(taker, taker.path)
    theirs = _seen(victim, victim.above)
    want = 'a/b2a/b/c["a/b", "a", "", "a", "", ""]' + 'a/d2a/d/e["a", "", ""]'
    return 0 if mine + theirs == want else fail(mine + theirs)
'''


def test_a_question_about_two_sides_has_each_queue_once() -> None:
    """Each had been written wherever it is read: 12 kB for Kueue's rules in three levels."""
    bundle = build_bundle(tree_files(OF_A_WHOLE_PATH, queues={"a/b/c": {}, "a/d/e": {}}), None)
    evaluator = _Asking(bundle)
    hooks = Scheduler(bundle, evaluator).tree
    assert hooks is not None
    tree = build_tree(hooks.tree.given)
    sums, shares = QueueSums(tree), TreeShares()
    shares.use(build_tree(()), tree)

    def line(path: str) -> list[QueueView]:
        return [shares.view(queue.path, sums) for queue in tree.above(path)]

    taker = hooks.taker("reclaim", Request.of_pod({"cpu": 1}), line("a/b/c"), branch=2)
    giver = Giver((("cpu", 1),), 0, True, 0)
    question = hooks.reclaim_question(taker, giver, line("a/d/e"), branch=2, total={})
    assert hooks.stages([question]) == [0]
    written = msgspec.json.decode(evaluator.questions[-1])[ALL_QUEUES]
    assert [queue["path"] for queue in written] == ["", "a", "a/b", "a/b/c", "a/d", "a/d/e"]


OF_ONE_LABEL = '''"""The queue of a label.

Hooks: queue_of, turn_key.
"""

args = plugin_args(label = "team", ignored = ["pods"])

def queue_of(pod):
    return pod.labels.get(args.label)

def turn_key(queue):
    return len([r for r in queue.allocated if r not in args.ignored])
'''


@pytest.mark.parametrize(
    ("text", "given", "want"),
    [
        pytest.param(OF_ONE_LABEL, {}, "labels[team]", id="the default"),
        pytest.param(OF_ONE_LABEL, {"label": "squad"}, "labels[squad]", id="what is given"),
        pytest.param(
            OF_ONE_LABEL + "\ndef _other(args):\n    return args.label\n",
            {},
            "labels",
            id="any, where the name stands for something else, too",
        ),
        pytest.param(
            OF_ONE_LABEL.replace('"team"', '"te" + "am"'), {}, "labels", id="any, if computed"
        ),
    ],
)
def test_a_queue_of_reads_the_label_that_its_argument_names(
    text: str, given: dict[str, Any], want: str
) -> None:
    """It had read all labels, and was asked again when a pod was bound.

    kube-apiserver (1.37.2, `PodTopologyLabelsAdmission`) writes the zone and the region of the node
    into the labels of the pod then.
    """
    bundle = build_bundle(tree_files(text, queues={"a": {}}, args=given), None)
    assert bundle.queue_tree is not None
    assert bundle.policies[bundle.queue_tree.policy].hooks["queue_of"].pod == {want}


def test_a_text_is_the_name_of_a_field_only_where_fields_are_read_by_name() -> None:
    """`ignored = ["pods"]` had shown how many pods a queue has, which changes with each of them."""
    of = {
        text: build_bundle(tree_files(text, queues={"a": {}}), None).queue_tree
        for text in (OF_ONE_LABEL, OF_ONE_LABEL.replace("len(", 'getattr(queue, "pods") + len('))
    }
    assert [tree is not None and "pods" in tree.mentioned["turn_key"] for tree in of.values()] == [
        False,
        True,
    ]


def test_a_trial_asks_about_many_queues_in_one_round_trip() -> None:
    """It had been one for each queue and hook: seconds at a start with 10,000 queues."""
    queues: dict[str, Any] = {f"q{number}": {} for number in range(60)}
    of_each = POLICY.replace('getattr(queue, "share")', "queue.path").replace(
        "_used(queue), total", "{queue.path: 1}, total"
    )
    bundle = build_bundle(tree_files(of_each, queues=queues), None)
    evaluator = _Asking(bundle)
    hooks = Scheduler(bundle, evaluator).tree
    assert hooks is not None
    assert [*failures_in_tree(hooks, [], Cache().snapshot())] == []
    assert len(evaluator.questions) >= 180
    assert evaluator.round_trips <= len(hooks.tree.hooks)
