"""The policies of simulated clusters, and edits of them: good ones, and such as are refused.

Owns their texts, by what the cluster has: an extender, facts.
"""

import functools
from collections.abc import Mapping, Set
from typing import Final

from devkit.faults.companions import EXTENDER_PORT, PROMETHEUS_PORT
from devkit.faults.life import (
    GROUP_LABEL,
    HOLD_LABEL,
    LATE_LABEL,
    LOOSE_LABEL,
    PAIR_RANK,
    RANK_LABEL,
    SIZE_LABEL,
)
from engine.policy.bundle import Bundle, build_bundle

_GROUPS: Final = f'''"""Binds the pods of a job once all of them have a node.

Loose jobs take a node for each pod as they find one, and wait there for the others.

Hooks: group_of, permit. Reads: pod.labels, of the group how many pods wait and are placed.
"""

def group_of(pod):
    job = pod.labels.get("{GROUP_LABEL}")
    if not job:
        return None
    if pod.labels.get("{LOOSE_LABEL}"):
        return gang(job, min_count = 0)
    return gang(job, min_count = _size(pod))

def permit(pod, group):
    if group != None and group.waiting + group.placed < _size(pod):
        return wait(20, "waiting for the other pods of the job")
    return None

def _size(pod):
    return parse_int(pod.labels.get("{SIZE_LABEL}"), 1)
'''
_TASTE: Final = '''"""Prefers nodes of a tier.

Hooks: score. Reads: node.labels["tier"].
"""

def score(pod, node):
    return {points} if node.labels.get("tier") == "{tier}" else 0
'''
_GATE: Final = f'''"""Holds pods back that ask for it.

Hooks: pre_enqueue. Reads: pod.labels["{HOLD_LABEL}"].
"""

def pre_enqueue(pod):
    return "held back by its label" if pod.labels.get("{HOLD_LABEL}") == "yes" else None
'''
_ORDER: Final = f'''"""Takes pods by priority, and those of one priority by rank.

Hooks: queue_key. Reads: pod.priority, pod.labels["{RANK_LABEL}"].
"""

def queue_key(pod):
    return (-pod.priority, pod.labels.get("{RANK_LABEL}", "2"))
'''
_PAIRS: Final = f'''"""Binds pods of one rank only while there is another one.

Hooks: group_of, permit. Reads: pod.labels["{RANK_LABEL}"], pod.priority, how many of the pods
that are alike in both have a node.
"""

def group_of(pod):
    is_paired = pod.labels.get("{RANK_LABEL}") == "{PAIR_RANK}"
    return gang("pairs-%d" % pod.priority, min_count = 0) if is_paired else None

def permit(pod, group):
    if group != None and group.waiting + group.placed < 2:
        return wait(30, "waiting for another pod of its rank")
    return None
'''
_CONFIG: Final = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint:
        enabled:
          - {name: groups}
          - {name: taste, weight: 2}
          - {name: gate}
          - {name: pairs}
      queueSort: {enabled: [{name: order}], disabled: [{name: "*"}]}
"""
#: The entry of the configuration that others are added after.
_AFTER: Final = "          - {name: taste, weight: 2}\n"
_EXTENDERS: Final = f"""\
extenders:
  - urlPrefix: http://127.0.0.1:{EXTENDER_PORT}/all
    filterVerb: filter
    prioritizeVerb: prioritize
    preemptVerb: preempt
    weight: 1
    httpTimeout: 2s
    nodeCacheCapable: true
  - urlPrefix: http://127.0.0.1:{EXTENDER_PORT}/whole
    filterVerb: filter
    prioritizeVerb: prioritize
    weight: 3
    httpTimeout: 3s
    ignorable: true
"""
_BINDING_EXTENDER: Final = f"""\
  - urlPrefix: http://127.0.0.1:{EXTENDER_PORT}/binds
    bindVerb: bind
    httpTimeout: 2s
"""
_COOL: Final = '''"""Prefers nodes that are cool and idle, as far as that is known.

Hooks: score. Reads: node.facts["heat"], node.facts["load"], node.pod_facts["reward"].
"""

def score(pod, node):
    points = 50
    heat = node.facts["heat"]
    if heat != None and heat.value != None:
        points -= math.clamp(math.round(heat.value), 0, 100) // 4
    busy = node.facts["load"]
    if busy != None and busy.value != None and busy.age_seconds != None and busy.age_seconds < 60:
        points -= math.clamp(math.round(busy.value), 0, 100) // 4
    reward = node.pod_facts["reward"].get(pod.type)
    if reward != None and reward.value != None:
        points += math.clamp(math.round(50 * reward.value), 0, 50)
    return math.clamp(points, 0, 100)
'''
_FACTS: Final = f"""\
facts:
  ageStep: 10s
  sources:
    - annotations: {{of: nodes, prefix: facts.example.com/}}
    - configMap: {{namespace: starsched, name: node-facts}}
    - prometheus:
        url: http://127.0.0.1:{PROMETHEUS_PORT}
        interval: 15s
        timeout: 5s
        queries:
          - {{fact: load, query: node_load}}
    - podOutcomes: {{fact: reward, weight: 0.2}}
    - podDemand: {{}}
"""
#: What the facts document says as long as it is whole.
FACTS_DOCUMENT: Final = '{"nodes": {"node-1": {"heat": 70}, "node-2": {"heat": {"value": 20}}}}'
_RUNTIME: Final = """\
apiVersion: starsched.dev/v1
kind: PolicyRuntime
fallback: {minDecisions: 4}
"""
_STAGES: Final = """\
rollout:
  shadow: {duration: 20s, compared: 5}
  canary:
    steps: [{share: 20%, duration: 20s, decisions: 3}]
"""
#: What of a text fails, or takes too long, for the pods of one rank.
_BY_RANK: Final = f'parse_int(pod.labels.get("{RANK_LABEL}", "2"))'
_SLOW_BY_RANK: Final = f"""
def filter(pod, node):
    for number in range(100000000 if pod.labels.get("{RANK_LABEL}") == "odd" else 1):
        pass
"""
_FAILING: Final = _TASTE.format(points="int(node.name)", tier="a")
_SLOW: Final = """
def filter(pod, node):
    for number in range(100000000):
        pass
"""
_FAILS_LATER: Final = f"""
def pre_filter(pod):
    if pod.labels.get("{LATE_LABEL}") == "yes":
        fail("no rule for late comers")
    return None
"""
#: What is changed, by name: the texts by file. Those that begin with `bad` must not decide for all.
EDITS: Final[Mapping[str, Mapping[str, str]]] = {
    "other tier": {"taste.star": _TASTE.format(points="100", tier="b")},
    "other points": {"taste.star": _TASTE.format(points="40", tier="a")},
    "other order": {"order.star": _ORDER.replace("(-pod.priority, ", "(")},
    "order fails for some": {"order.star": _ORDER.replace("return (", f"return ({_BY_RANK}, ")},
    "gate fails for some": {
        "gate.star": _GATE.replace("return ", f"return None if {_BY_RANK} else ")
    },
    "score fails for some": {"taste.star": _TASTE.format(points=_BY_RANK, tier="a")},
    "slow for some": {"taste.star": _TASTE.format(points="100", tier="a") + _SLOW_BY_RANK},
    "no gate": {"gate.star": _GATE.replace("yes", "never")},
    "back": {},
    "staged": {"runtime.yaml": _RUNTIME + _STAGES},
    "one more policy": {
        "extra.star": _TASTE.format(points="10", tier="b"),
        "config.yaml": _CONFIG.replace(_AFTER, _AFTER + "          - {name: extra}\n"),
    },
    "fails for late comers": {"gate.star": _GATE + _FAILS_LATER},
    "shadow alone": {"runtime.yaml": _RUNTIME + "rollout: {shadow: {duration: 5s, compared: 1}}\n"},
    "long stages": {"runtime.yaml": _RUNTIME + "rollout: {shadow: {duration: 1h}}\n"},
    "bad: no Starlark": {"taste.star": "def score(:\n"},
    "bad: fails": {"taste.star": _FAILING},
    "bad: fails for every pod": {"gate.star": _GATE + _FAILS_LATER.replace("==", "!=")},
    "bad: takes too long": {"taste.star": _TASTE.format(points="100", tier="a") + _SLOW},
    "bad: no such policy": {"config.yaml": _CONFIG.replace("taste", "tast")},
    "bad: no text at all": {"config.yaml": "[", "taste.star": "\x00"},
}


def files_of(edit: str, number: int, features: Set[str] = frozenset()) -> dict[str, str]:
    """The files of *edit* in a cluster with *features*; *number* makes a revision of its own."""
    files = {
        "groups.star": _GROUPS,
        "taste.star": _TASTE.format(points="100", tier="a"),
        "gate.star": _GATE,
        "order.star": _ORDER,
        "pairs.star": _PAIRS,
        "config.yaml": _CONFIG,
        "runtime.yaml": _RUNTIME,
    }
    files |= EDITS[edit]
    files["taste.star"] += f"\n# Edit {number}.\n"
    if "facts" in features:
        files["cool.star"] = _COOL
        with_it = _AFTER + "          - {name: cool}\n"
        files["config.yaml"] = files["config.yaml"].replace(_AFTER, with_it)
        files["runtime.yaml"] = files["runtime.yaml"] + _FACTS
    if "extender" in features:
        files["config.yaml"] += _EXTENDERS
        if "binding extender" in features:
            files["config.yaml"] += _BINDING_EXTENDER
    return files


def built(files: Mapping[str, str]) -> Bundle:
    """The bundle of *files*. Raises `PolicyErrors`."""
    return _built_once(tuple(sorted(files.items())))


@functools.lru_cache(maxsize=64)
def _built_once(files: tuple[tuple[str, str], ...]) -> Bundle:
    return build_bundle(dict(files))
