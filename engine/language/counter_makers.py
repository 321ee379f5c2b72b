"""Builtins that select and count pods and nodes: `matches`, `count_pods`, `sum_requests`, ...

Owns their Starlark text. What the counters count is decided in `caching.counter_parts`.
"""

from typing import Final

from engine.core.model.resources import is_counted_resource
from engine.language.table import Builtin, Parameter, kinds

_ONE_WILL_DO: Final = {"str": "a list of one will do: `[{given}]`"}
_LABELS: Final = kinds("dict struct none"), "a selector or a dict of labels"
_WEIGHT: Final = Parameter("weight", kinds("int"), "an int", "1")
_UP_TO: Final = Parameter("up_to", kinds("int none"), "an int of at least 0 or None", "None", low=0)
#: The kinds of affinity terms that can be counted.
TERMS: Final = (
    "required_affinity",
    "required_anti_affinity",
    "preferred_affinity",
    "preferred_anti_affinity",
)


def _resource_problem(name: str) -> tuple[str, str]:
    """A name that no node's sums hold: its sum would always be 0."""
    if is_counted_resource(name):
        return "", ""
    return "a resource that pods request", "such as `cpu`, `memory` or `nvidia.com/gpu`"


_TOPOLOGY: Final = Parameter("topology", kinds("str none"), "a label key or None")
_SELECTORS: Final = Parameter(
    "selectors", kinds("list tuple none"), "a list of pods_in(...)", "None"
)
_AMONG: Final = Parameter(
    "among",
    kinds("str none"),
    'the name of a function, such as "among_x"',
    "None",
    hints={"function": 'a counter names it: `among = "{given}"`'},
)
# Which pods, and on which nodes; the same for all that is counted of pods.
_OF_PODS: Final = (
    Parameter("labels", *_LABELS, "None"),
    Parameter(
        "namespaces",
        kinds("list tuple none"),
        "a list of namespaces",
        "None",
        holds_texts=True,
        hints=_ONE_WILL_DO,
    ),
    _AMONG,
    Parameter(
        "keys",
        kinds("list tuple"),
        "a list of label keys",
        "[]",
        holds_texts=True,
        hints=_ONE_WILL_DO,
    ),
    _WEIGHT,
    Parameter("terminating", kinds("bool"), "True or False", "False"),
    _UP_TO,
)

ENTRIES: Final[tuple[Builtin, ...]] = (
    Builtin(
        name="matches",
        parameters=(
            Parameter("selector", *_LABELS),
            Parameter("labels", kinds("dict"), "a dict of labels"),
        ),
        result="bool",
        doc="True if *selector*, a `Selector` or a dict of labels, matches *labels*; None matches "
        "nothing.",
    ),
    Builtin(
        name="count_pods",
        parameters=(_TOPOLOGY, _SELECTORS, *_OF_PODS),
        result="counter",
        doc="Placed pods that all of *selectors* (made by `pods_in`) match, or those with *labels* "
        "in *namespaces*, for each value of the node label *topology* (None: each node).",
    ),
    Builtin(
        name="sum_requests",
        parameters=(
            _TOPOLOGY,
            _SELECTORS,
            Parameter(
                "resource",
                kinds("str"),
                "the name of a resource",
                "None",
                problem=_resource_problem,
            ),
            *_OF_PODS,
        ),
        result="counter",
        doc="What those pods request of *resource*, which must be given, as `node.requested` "
        "counts it: in millicores of cpu, bytes of memory, units of the rest. The others are as "
        "for `count_pods`; a pod that requests none is not counted.",
    ),
    Builtin(
        name="count_nodes",
        parameters=(
            _TOPOLOGY,
            Parameter("labels", *_LABELS, "None"),
            Parameter("free", kinds("dict"), "a dict of amounts by resource", "{}"),
            _AMONG,
            _WEIGHT,
            _UP_TO,
        ),
        result="counter",
        doc="Nodes with *labels* (None: whatever they have) that have at least the amounts *free*, "
        'as `{"nvidia.com/gpu": 8}`, beyond what their pods request, for each value of the node '
        "label *topology*; with None `here` is 1 on such a node and 0 on others, and `total` is "
        "how many there are.",
    ),
    Builtin(
        name="count_terms",
        parameters=(
            Parameter("kind", kinds("str"), "a kind of terms", choices=TERMS),
            _WEIGHT,
            _UP_TO,
        ),
        result="counter",
        doc="The placed pods' own affinity terms that match this pod; *kind* is "
        "`required_affinity`, `required_anti_affinity`, `preferred_affinity` or "
        "`preferred_anti_affinity`, the latter two weighed.",
    ),
    Builtin(
        name="count_matches",
        parameters=(
            Parameter("kind", kinds("str"), "a kind of terms", choices=TERMS),
            Parameter("topology", kinds("str none"), "a label key or None", "None"),
            _WEIGHT,
            _UP_TO,
        ),
        result="counter",
        doc="The placed pods that match this pod's own affinity terms of *kind*, as `count_terms` "
        "names them: once for each term, in its topology; of `required_affinity` those that all "
        "terms match, once. With *topology*, for each value of that label instead. However many "
        "terms there are, the policy reads none of them.",
    ),
    Builtin(
        name="pods_in",
        parameters=(
            Parameter(
                "namespaces",
                kinds("list tuple"),
                "a list of namespaces",
                holds_texts=True,
                hints=_ONE_WILL_DO,
            ),
            Parameter("selector", *_LABELS),
            Parameter("namespace_selector", *_LABELS, "None"),
        ),
        result="selector",
        doc="For *selectors*: the pods that *selector*, a dict of labels or a `Selector` such as "
        "`pod.spread_selector`, matches in these namespaces, and in those "
        'whose labels *namespace_selector* matches; `pods_in([], {"app": "web"}, {})` is in all '
        "namespaces.",
    ),
)

TEXT: Final = '''\
def matches(selector, labels):
    if selector == None:
        return False
    if type(selector) == "dict":
        return _has(selector, labels)
    if not _has(selector.labels, labels):
        return False
    for requirement in selector.expressions:
        value, operator = labels.get(requirement.key), requirement.operator
        if operator == "In":
            holds = value != None and value in requirement.values
        elif operator == "NotIn":
            holds = value == None or value not in requirement.values
        elif operator == "Exists":
            holds = value != None
        elif operator == "DoesNotExist":
            holds = value == None
        else:
            holds = False
        if not holds:
            return False
    return True

def _has(wanted, labels):
    for key, value in wanted.items():
        if labels.get(key) != value:
            return False
    return True

def _check_texts(values, function, what):
    if type(values) not in ("list", "tuple"):
        fail("%s() wants a list of %s, got %s" % (function, what, repr(values)))
    for value in values:
        if type(value) != "string":
            fail("%s() wants %s that are strings, got %s" % (function, what, repr(value)))

def _plain_selector(selector, function):
    if selector == None:
        return None
    if type(selector) == "dict" and type(selector.get("expressions")) == "list":
        labels, expressions = selector.get("labels", {}), selector["expressions"]
    elif type(selector) == "dict":
        labels, expressions = selector, []
    elif hasattr(selector, "labels") and hasattr(selector, "expressions"):
        labels, expressions = dict(selector.labels), [
            {"key": r.key, "operator": r.operator, "values": list(r.values)}
            for r in selector.expressions
        ]
    else:
        fail("%s() wants a selector or a dict of labels, got %s" % (function, repr(selector)))
    if type(labels) != "dict" or type(expressions) != "list":
        fail("%s() wants a selector or a dict of labels, got %s" % (function, repr(selector)))
    for key, value in labels.items():
        if type(key) != "string" or type(value) != "string":
            fail("%s() wants labels that are strings, got %s" % (function, repr({key: value})))
    for requirement in expressions:
        if type(requirement) != "dict" or "key" not in requirement or "operator" not in requirement:
            fail("%s() wants requirements, got %s" % (function, repr(requirement)))
        _check_texts([requirement["key"], requirement["operator"]], function, "requirements")
        _check_texts(requirement.get("values", []), function, "values")
    return {"labels": labels, "expressions": expressions}

def pods_in(namespaces, selector, namespace_selector = None):
    """Pods of *namespaces*, or of the selected namespaces, that *selector* matches."""
    return _pods_in(namespaces, selector, namespace_selector, "pods_in")

def _pods_in(namespaces, selector, namespace_selector, function):
    _check_texts(namespaces, function, "namespaces")
    return {
        "namespaces": list(namespaces),
        "selector": _plain_selector(selector, function),
        "namespace_selector": _plain_selector(namespace_selector, function),
    }

# So that no sum of weights is too large to be kept.
_HEAVIEST = 2147483648
_MOST = 9007199254740992

def _check_amounts(weight, up_to, function):
    if type(weight) != "int" or weight < -_HEAVIEST or weight > _HEAVIEST:
        fail("%s() wants a weight that is an int in -2**31..2**31, got %s" %
             (function, repr(weight)))
    if up_to != None and (type(up_to) != "int" or up_to < 0 or up_to > _MOST):
        fail("%s() wants an up_to that is an int of at least 0, got %s" % (function, repr(up_to)))

def count_pods(
        topology,
        selectors = None,
        labels = None,
        namespaces = None,
        among = None,
        keys = [],
        weight = 1,
        terminating = False,
        up_to = None):
    """A counter of placed pods that all of *selectors* match, by value of the label *topology*."""
    common = _common("count_pods", topology, among, keys, weight, up_to)
    pods = _of_pods("count_pods", selectors, labels, namespaces, terminating)
    return common | pods | {"resource": None}

def sum_requests(
        topology,
        selectors = None,
        resource = None,
        labels = None,
        namespaces = None,
        among = None,
        keys = [],
        weight = 1,
        terminating = False,
        up_to = None):
    """A counter of what those pods request of *resource*."""
    if type(resource) != "string" or not resource:
        fail("sum_requests() wants the name of a resource as resource, got " + repr(resource))
    common = _common("sum_requests", topology, among, keys, weight, up_to)
    pods = _of_pods("sum_requests", selectors, labels, namespaces, terminating)
    return common | pods | {"resource": resource}

def _common(function, topology, among, keys, weight, up_to):
    if topology != None and type(topology) != "string":
        fail("%s() wants a label key or None as topology, got %s" % (function, repr(topology)))
    if among != None and type(among) != "string":
        fail('%s() wants the name of a function as among, such as "among_x", got %s' %
             (function, repr(among)))
    _check_texts(keys, function, "keys")
    _check_amounts(weight, up_to, function)
    return {
        "topology": topology,
        "among": among,
        "keys": list(keys),
        "weight": weight,
        "up_to": up_to,
    }

def _of_pods(function, selectors, labels, namespaces, terminating):
    if type(terminating) != "bool":
        fail("%s() wants a terminating that is a bool, got %s" % (function, repr(terminating)))
    terms = list(selectors or [])
    for term in terms:
        if type(term) != "dict" or sorted(term) != ["namespace_selector", "namespaces", "selector"]:
            fail("%s() wants selectors made by pods_in(...), got %s" % (function, repr(term)))
    # What is left out by mistake would count nothing, in silence.
    if labels != None:
        _plain_selector(labels, function)
        if namespaces == None:
            fail(function + "() wants namespaces with labels, such as [pod.namespace]; for all " +
                 "of them it takes selectors = [pods_in([], labels, namespace_selector = {})]")
        terms.append(_pods_in(namespaces, labels, None, function))
    elif namespaces != None:
        fail(function + "() wants labels with namespaces, {} for all of their pods")
    elif selectors == None:
        fail(function + "() wants labels and namespaces, or selectors made by pods_in(...)")
    return {"kind": "pods", "terms": terms, "terminating": terminating}

def count_nodes(topology, labels = None, free = {}, among = None, weight = 1, up_to = None):
    """A counter of nodes with *labels* and at least the amounts *free*."""
    common = _common("count_nodes", topology, among, [], weight, up_to)
    if type(free) != "dict":
        fail("count_nodes() wants a dict of amounts by resource as free, got " + repr(free))
    for name, amount in free.items():
        is_amount = type(amount) == "int" and amount >= 0 and amount <= _MOST
        if type(name) != "string" or not name or not is_amount:
            fail("count_nodes() wants free amounts that are ints of at least 0, got " +
                 repr({name: amount}))
    selector = _plain_selector(labels, "count_nodes")
    return common | {"kind": "nodes", "selector": selector, "free": dict(free)}

_TERMS = (
    "required_affinity",
    "required_anti_affinity",
    "preferred_affinity",
    "preferred_anti_affinity",
)

def count_terms(kind, weight = 1, up_to = None):
    """A counter of the placed pods' affinity terms of *kind* that match the incoming pod."""
    if kind not in _TERMS:
        fail("count_terms() wants one of %s, got %s" % (", ".join(_TERMS), repr(kind)))
    _check_amounts(weight, up_to, "count_terms")
    part = {"kind": "terms", "of": kind, "keys": [], "among": None}
    return part | {"weight": weight, "up_to": up_to}

def count_matches(kind, topology = None, weight = 1, up_to = None):
    """A counter of the placed pods that match the incoming pod's affinity terms of *kind*."""
    if kind not in _TERMS:
        fail("count_matches() wants one of %s, got %s" % (", ".join(_TERMS), repr(kind)))
    if topology != None and type(topology) != "string":
        fail("count_matches() wants a label key or None as topology, got " + repr(topology))
    _check_amounts(weight, up_to, "count_matches")
    part = {"kind": "matches", "of": kind, "topology": topology, "keys": [], "among": None}
    return part | {"weight": weight, "up_to": up_to}
'''
