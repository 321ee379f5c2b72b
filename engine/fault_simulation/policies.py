"""The policies of simulated clusters, and edits of them: good ones, and such as are refused."""

from collections.abc import Mapping
from typing import Final

from engine.fault_simulation.life import GROUP_LABEL, HOLD_LABEL, RANK_LABEL, SIZE_LABEL

_GROUPS: Final = f'''"""Binds the pods of a job once all of them have a node.

Hooks: group_of, permit. Reads: pod.labels, of the group how many pods wait and are placed.
"""

def group_of(pod):
    job = pod.labels.get("{GROUP_LABEL}")
    if not job:
        return None
    return gang(job, min_count = parse_int(pod.labels.get("{SIZE_LABEL}"), 1))

def permit(pod, group):
    if group != None and group.waiting + group.placed < group.min_count:
        return wait(60, "waiting for the other pods of the job")
    return None
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
      queueSort: {enabled: [{name: order}], disabled: [{name: "*"}]}
"""
_RUNTIME: Final = """\
apiVersion: starsched.dev/v1
kind: PolicyRuntime
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
    "staged": {"runtime.yaml": _RUNTIME},
    "bad: no Starlark": {"taste.star": "def score(:\n"},
    "bad: fails": {"taste.star": _FAILING},
    "bad: takes too long": {"taste.star": _TASTE.format(points="100", tier="a") + _SLOW},
    "bad: no such policy": {"config.yaml": _CONFIG.replace("taste", "tast")},
    "bad: no text at all": {"config.yaml": "[", "taste.star": "\x00"},
}


def files_of(edit: str, number: int) -> dict[str, str]:
    """The files of *edit*; *number* makes a revision of its own of them."""
    files = {
        "groups.star": _GROUPS,
        "taste.star": _TASTE.format(points="100", tier="a"),
        "gate.star": _GATE,
        "order.star": _ORDER,
        "config.yaml": _CONFIG,
    }
    files |= EDITS[edit]
    files["taste.star"] += f"\n# Edit {number}.\n"
    return files
