"""A hook of queues is given what its own text reads, with all that it calls, and nothing else."""

import time

from engine.policy.bundle import build_bundle
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
