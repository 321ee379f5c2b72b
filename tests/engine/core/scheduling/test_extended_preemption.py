"""Preemption on nodes that an extender rejected, though the filters accept the pod there.

Plugins alone never come there: of what they accept, no node is left to preempt on.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from engine.core.caching.cache import Cache
from engine.core.framework.behaviors import behaviors_of
from engine.core.framework.extender import EXTENDER
from engine.core.framework.status import Code, Status
from engine.core.model.pod import Pod
from engine.core.scheduling.decision import Decision
from engine.core.scheduling.extenders import (
    ExtenderFilter,
    ExtenderPreempt,
    FilterAnswer,
    NodeVictims,
    PreemptAnswer,
    unopposed,
)
from engine.core.scheduling.scheduling_cycle import Scheduler
from engine.policy.bundle import build_bundle
from engine.policy.evaluator import InProcessEvaluator
from tests.builders import make_node, make_pod

NO_VICTIMS = "No preemption victims found for incoming pod."
EXPECTED = 'preemption: expected at least one victim pod on node "{}"'
CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
"""


class Asked:
    """One scheduler, a cluster whose version can change, and extenders that reject every node.

    Attributes:
        shown: The candidates that the extenders were last asked about; None: they were not.
    """

    def __init__(self, *extenders: str) -> None:
        texts = [f"- {{urlPrefix: 'http://{k}', {verbs}}}" for k, verbs in enumerate(extenders)]
        bundle = build_bundle({"config.yaml": CONFIGURATION + "\n".join(texts)})
        self._scheduler = Scheduler(bundle, InProcessEvaluator(bundle.program))
        self.cache = Cache()
        self.shown: Mapping[str, NodeVictims] | None = None

    def decide(self, minor: int, pod: Pod, *, names: Mapping[str, Pod] | None = None) -> Decision:
        """What is decided about *pod*; the extenders name the victims *names*, by node."""
        self.cache.objects.behaves = behaviors_of(minor)
        self.shown = None
        steps = self._scheduler.steps(pod, self.cache.snapshot())
        question = next(steps)
        try:
            while True:
                answer = unopposed(question)
                if isinstance(question, ExtenderFilter):
                    status = Status(Code.UNSCHEDULABLE, ("no license",), EXTENDER)
                    answer = FilterAnswer((), {info.name: status for info in question.infos})
                elif isinstance(question, ExtenderPreempt):
                    self.shown = dict(question.victims)
                    if names is not None:
                        answer = PreemptAnswer({n: NodeVictims((v,)) for n, v in names.items()})
                question = steps.send(answer)
        except StopIteration as end:
            decision: Decision = end.value.decision
            return decision


def weak(name: str, node: str) -> Pod:
    return make_pod(name, node=node, uid=name, cpu="1", priority=0)


def urgent(**words: Any) -> Pod:
    return make_pod("urgent", **{"cpu": "1", "priority": 100, **words})


FILTERS = "filterVerb: filter"
PREEMPTS = "filterVerb: filter, preemptVerb: preempt"
OF_OTHERS = f"{PREEMPTS}, managedResources: [{{name: example.com/license}}]"


@pytest.mark.parametrize("extender", [FILTERS, OF_OTHERS])
def test_without_victims_preemption_fails_until_1_37_and_says_so_from_1_38_on(
    extender: str,
) -> None:
    """Source: `DryRunPreemption` of both versions, which 1.37 has fail the post-filter."""
    asked = Asked(extender)
    asked.cache.add_node(make_node("a", cpu="2"))
    asked.cache.add_pod(weak("there", "a"))
    for minor in (37, 38, 37):
        message = asked.decide(minor, urgent()).message()
        assert asked.shown is None
        assert message.startswith("0/1 nodes are available: 1 no license.")
        if minor == 38:
            assert message.endswith(f"preemption: 0/1 nodes are available: 1 {NO_VICTIMS}")
        else:
            assert message.endswith(EXPECTED.format("a"))


def test_several_nodes_without_victims_until_1_37() -> None:
    asked = Asked(FILTERS)
    for name in "ab":
        asked.cache.add_node(make_node(name, cpu="2"))
        asked.cache.add_pod(weak(f"on-{name}", name))
    message = asked.decide(37, urgent()).message()
    texts = (EXPECTED.format(name).removeprefix("preemption: ") for name in "ab")
    assert message.partition("preemption: [")[2].removesuffix("]").split(", ") == sorted(texts)
    decision = asked.decide(38, urgent())
    assert decision.message().endswith(f"preemption: 0/2 nodes are available: 2 {NO_VICTIMS}")


@pytest.mark.parametrize("minor", [37, 38])
def test_another_node_on_which_evicting_helps_is_taken(minor: int) -> None:
    asked = Asked(PREEMPTS)
    asked.cache.add_node(make_node("a", cpu="2"))
    asked.cache.add_node(make_node("b", cpu="1"))
    asked.cache.add_pod(weak("on-a", "a"))
    asked.cache.add_pod(weak("on-b", "b"))
    decision = asked.decide(minor, urgent())
    assert decision.eviction is not None
    assert [pod.name for pod in decision.eviction.victims] == ["on-b"]
    assert asked.shown is not None
    assert sorted(asked.shown) == (["a", "b"] if minor == 38 else ["b"])


@pytest.mark.parametrize("extenders", [(PREEMPTS,), (FILTERS, PREEMPTS), (OF_OTHERS, PREEMPTS)])
def test_from_1_38_on_an_extender_may_name_victims_where_there_were_none(
    extenders: tuple[str, ...],
) -> None:
    asked = Asked(*extenders)
    asked.cache.add_node(make_node("a", cpu="2"))
    there = weak("there", "a")
    asked.cache.add_pod(there)
    for minor in (37, 38, 37):
        decision = asked.decide(minor, urgent(), names={"a": there})
        if minor == 38:
            assert asked.shown == {"a": NodeVictims(())}
            assert decision.eviction is not None
            assert decision.eviction.victims == (there,)
        else:
            assert asked.shown is None
            assert decision.eviction is None
            assert decision.message().endswith(EXPECTED.format("a"))


def test_a_node_for_which_no_extender_names_victims_is_none_to_preempt_on() -> None:
    asked = Asked(PREEMPTS)
    asked.cache.add_node(make_node("a", cpu="2"))
    asked.cache.add_pod(weak("there", "a"))
    decision = asked.decide(38, urgent())
    assert asked.shown == {"a": NodeVictims(())}
    assert decision.eviction is None
    assert decision.message().endswith("preemption: no candidate node for preemption")


def test_pods_that_an_extender_does_not_preempt_for_take_nothing_over_from_those_it_does() -> None:
    """They are of one class: the answers of one were those of the other."""
    license_of_pod = {"requests": {"cpu": "1"}, "limits": {"example.com/license": "1"}}
    asked = Asked(OF_OTHERS)
    asked.cache.add_node(make_node("a", cpu="2"))
    asked.cache.add_pod(weak("there", "a"))
    managed = urgent(containers=[{"name": "c", "resources": license_of_pod}])
    for pod, shown in ((urgent(), None), (managed, {"a": NodeVictims(())}), (urgent(), None)):
        asked.decide(38, pod)
        assert asked.shown == shown
