"""Builtins that make verdicts: `reject("why")`, `skip()`, `state(...)` and the like.

Owns their Starlark text. What a verdict becomes on its way out of the sandbox, and which hooks take
it, is `verdicts`.
"""

import string
from typing import Final

from engine.core.framework.reasons import LONGEST_TOKEN, RESERVED, TOKEN_FORM, token_problem
from engine.core.model.pod_group import DISRUPTION_MODES, PREEMPTION_POLICIES
from engine.language.table import Builtin, Parameter, kinds

_REASONS: Final = Parameter(
    "reasons",
    kinds("str list tuple"),
    "a reason or a list of reasons",
    is_filled=True,
    holds_texts=True,
)
_TOKEN: Final = Parameter(
    "token",
    kinds("str"),
    f"a reason token ({TOKEN_FORM})",
    '""',
    problem=token_problem,
)

_NAME: Final = Parameter("name", kinds("str"), "a text that is not empty", is_filled=True)

ENTRIES: Final[tuple[Builtin, ...]] = (
    Builtin(
        name="unresolvable",
        parameters=(_REASONS, _TOKEN),
        result="verdict",
        makes="u",
        doc="Rejected, and removing pods could not help.",
    ),
    Builtin(
        name="reject",
        parameters=(_REASONS, _TOKEN),
        result="verdict",
        makes="r",
        doc="Rejected, and removing pods could help.",
    ),
    Builtin(
        name="skip",
        result="verdict",
        makes="skip",
        doc="This policy's filter, or score, does not run for this pod.",
    ),
    Builtin(
        name="only_nodes",
        parameters=(
            Parameter(
                "names",
                kinds("list tuple dict"),
                "a list of node names",
                holds_texts=True,
                hints={"str": "a list of one will do: `[{given}]`"},
            ),
            Parameter(
                "state",
                kinds("verdict none"),
                "state(...) or None",
                "None",
                hints={"dict": "`state(name = value)` keeps values for later hooks"},
            ),
        ),
        result="verdict",
        makes="only",
        doc="No other node is considered; takes `state = state(...)` too.",
    ),
    Builtin(
        name="state",
        parameters=(Parameter("values", is_rest=True),),
        result="verdict",
        makes="state",
        doc="Plain data for this policy's later hooks, as `state.name`.",
    ),
    Builtin(
        name="wait",
        parameters=(
            Parameter(
                "seconds",
                kinds("int float"),
                "a number of seconds above 0",
                low=0,
                is_above_low=True,
                hints={"str": "seconds are a number: `wait(10)`"},
            ),
            Parameter(
                "reason",
                kinds("str list tuple"),
                "a reason or a list of reasons",
                '"waiting for the rest of its group"',
                is_filled=True,
                holds_texts=True,
            ),
            _TOKEN,
        ),
        result="verdict",
        makes="wait",
        doc="The pod keeps its node and is not bound yet; after *seconds* (900 at most) it is "
        "rejected.",
    ),
    Builtin(
        name="gang",
        parameters=(
            _NAME,
            Parameter(
                "min_count", kinds("int none"), "an int of at least 0 or None", "None", low=0
            ),
            Parameter("priority", kinds("int none"), "an int or None", "None"),
            Parameter(
                "preemption_policy",
                kinds("str none"),
                "a preemption policy or None",
                "None",
                choices=PREEMPTION_POLICIES,
            ),
            Parameter(
                "disruption_mode",
                kinds("str none"),
                "a disruption mode or None",
                "None",
                choices=DISRUPTION_MODES,
            ),
        ),
        result="verdict",
        makes="gang",
        doc="The pod is in this group, of which *min_count* pods are placed together; None: what "
        "the PodGroup of this name says. Given, the others replace what it says.",
    ),
    Builtin(
        name="queue",
        parameters=(
            _NAME,
            Parameter("parent", kinds("str"), "the name of a queue", '""'),
            Parameter("is_implied", kinds("bool"), "True or False", "False"),
            Parameter("attributes", is_rest=True),
        ),
        result="verdict",
        makes="queue",
        doc="A queue of this name under *parent* (the root if it is empty), with the attributes "
        "that `queue_attributes` declares. One that *is_implied* gives way to any other of its "
        "name.",
    ),
    Builtin(
        name="alias",
        parameters=(_NAME, Parameter("of", kinds("str"), "a queue's name", is_filled=True)),
        result="verdict",
        makes="alias",
        doc="Another name for the queue *of*, by which `queue_of` may name it.",
    ),
    Builtin(
        name="member",
        parameters=(
            Parameter("queue", kinds("str"), "a queue's name", is_filled=True),
            Parameter("preemptible", kinds("bool"), "True or False", "True"),
        ),
        result="verdict",
        makes="member",
        doc="The pod is in this queue; one that is not *preemptible* is never given back.",
    ),
    Builtin(
        name="ratio",
        parameters=(
            Parameter("n", kinds("int"), "an int"),
            Parameter("d", kinds("int"), "an int of at least 0", low=0),
        ),
        result="verdict",
        makes="ratio",
        doc="*n* over *d*, exactly; over 0 it is infinite, but 0 over 0 is 0.",
    ),
    Builtin(
        name="hold",
        parameters=(
            Parameter("reason", kinds("str"), "a text that is not empty", is_filled=True),
            _TOKEN,
            Parameter("at", kinds("str"), "the path of a queue", '""'),
            Parameter(
                "short",
                kinds("struct none"),
                "what over(...) of @std/amounts.star gives, or None",
                "None",
            ),
            Parameter("whole_queue", kinds("bool"), "True or False", "False"),
        ),
        result="verdict",
        makes="hold",
        doc="The request waits: until as much is free as it is *short* of, in the queue *at* (the "
        "root if it is empty); *whole_queue*: those behind it in its queue wait, too.",
    ),
    Builtin(
        name="queue_attributes",
        parameters=(Parameter("defaults", is_rest=True),),
        is_translated=False,
        doc="At top level: the attributes of the queues that this policy governs, with what they "
        "are where they are not given.",
    ),
)

TEXT: Final = (
    f"""\
_CHARACTERS = "{string.ascii_letters}{string.digits}"
_LONGEST = {LONGEST_TOKEN}
_RESERVED = {sorted(RESERVED)}
_FORM = " wants a reason token ({TOKEN_FORM}), got "
"""
    + """\
def _token(token, function):
    if type(token) != "string":
        fail(function + "()" + _FORM + repr(token))
    if not token:
        return token
    if len(token) > _LONGEST or not token[0].isupper() or token.strip(_CHARACTERS):
        fail(function + "()" + _FORM + repr(token))
    if token in _RESERVED:
        text = "() wants a reason token that a policy may give, got %s, which is the scheduler's"
        fail(function + text % repr(token))
    return token

def _reasons(given, function):
    reasons = [given] if type(given) == "string" else given
    if type(reasons) not in ("list", "tuple") or not reasons:
        fail(function + "() wants a reason or a list of reasons, got " + repr(given))
    for reason in reasons:
        if type(reason) != "string" or not reason.strip():
            fail(function + "() wants reasons that are non-empty strings, got " + repr(reason))
    return list(reasons)

def unresolvable(reasons, token = ""):
    return struct(
        verdict = "u",
        reasons = _reasons(reasons, "unresolvable"),
        token = _token(token, "unresolvable"),
    )

def reject(reasons, token = ""):
    return struct(
        verdict = "r",
        reasons = _reasons(reasons, "reject"),
        token = _token(token, "reject"),
    )

def skip():
    return struct(verdict = "skip")

def state(**values):
    return struct(verdict = "state", state = values)

def only_nodes(names, state = None):
    if type(names) not in ("list", "tuple", "dict"):
        fail("only_nodes() wants a list of node names, got " + repr(names))
    for name in names:
        if type(name) != "string":
            fail("only_nodes() wants names that are strings, got " + repr(name))
    if state != None and getattr(state, "verdict", None) != "state":
        fail("only_nodes() wants `state = state(...)`, got " + repr(state))
    return struct(
        verdict = "only",
        names = list(names),
        state = None if state == None else state.state,
    )

# No pod waits longer in permit.
_MOST_SECONDS = 900

def wait(seconds, reason = "waiting for the rest of its group", token = ""):
    # NaN is above every number here.
    if type(seconds) not in ("int", "float") or not 0 < seconds or str(seconds) == "nan":
        fail("wait() wants a number of seconds above 0, got " + repr(seconds))
    return struct(
        verdict = "wait",
        seconds = float(min(seconds, _MOST_SECONDS)),
        reasons = _reasons(reason, "wait"),
        token = _token(token, "wait"),
    )

# No priority of the API is beyond this one.
_MOST = 2147483647
_PREEMPTION_POLICIES = ["PreemptLowerPriority", "Never"]
_DISRUPTION_MODES = ["single", "all"]

def _choice(given, name, choices):
    if given != None and given not in choices:
        fail("gang() wants a %s of %s, got %s" % (name, " or ".join(choices), repr(given)))
    return given

def gang(name, min_count = None, priority = None, preemption_policy = None, disruption_mode = None):
    if type(name) != "string" or not name:
        fail("gang() wants a name that is a non-empty string, got " + repr(name))
    if min_count != None and (type(min_count) != "int" or min_count < 0):
        fail("gang() wants a min_count that is an int of at least 0, got " + repr(min_count))
    if priority != None and type(priority) != "int":
        fail("gang() wants a priority that is an int, got " + repr(priority))
    return struct(
        verdict = "gang",
        name = name,
        min_count = None if min_count == None else min(min_count, 1000000000),
        priority = None if priority == None else max(-_MOST, min(priority, _MOST)),
        preemption_policy = _choice(preemption_policy, "preemption_policy", _PREEMPTION_POLICIES),
        disruption_mode = _choice(disruption_mode, "disruption_mode", _DISRUPTION_MODES),
    )

def _filled(text, name, function):
    if type(text) != "string" or not text.strip():
        fail("%s() wants a %s that is a non-empty string, got %s" % (function, name, repr(text)))
    return text

def queue(name, parent = "", is_implied = False, **attributes):
    if type(parent) != "string":
        fail("queue() wants a parent that is a string, got " + repr(parent))
    if type(is_implied) != "bool":
        fail("queue() wants True or False for is_implied, got " + repr(is_implied))
    return struct(
        verdict = "queue",
        name = _filled(name, "name", "queue"),
        parent = parent,
        is_implied = is_implied,
        attributes = attributes,
    )

def alias(name, of):
    return struct(
        verdict = "alias",
        name = _filled(name, "name", "alias"),
        of = _filled(of, "queue", "alias"),
    )

def member(queue, preemptible = True):
    if type(preemptible) != "bool":
        fail("member() wants True or False for preemptible, got " + repr(preemptible))
    return struct(
        verdict = "member",
        queue = _filled(queue, "queue", "member"),
        preemptible = preemptible,
    )

def ratio(n, d):
    if type(n) != "int" or type(d) != "int" or d < 0:
        fail("ratio() wants two ints, the second at least 0, got %s and %s" % (repr(n), repr(d)))
    return struct(verdict = "ratio", n = n, d = d)

# No sum is larger.
_LARGEST = 1 << 62

def _short(short):
    if short == None:
        return None
    resource, by = getattr(short, "resource", None), getattr(short, "by", None)
    if type(resource) != "string" or type(by) != "int" or by < 1:
        fail("hold() wants `short` as over(...) gives it, or None, got " + repr(short))
    return [resource, min(by, _LARGEST)]

def hold(reason, token = "", at = "", short = None, whole_queue = False):
    if type(at) != "string":
        fail("hold() wants the path of a queue as `at`, got " + repr(at))
    if type(whole_queue) != "bool":
        fail("hold() wants True or False for whole_queue, got " + repr(whole_queue))
    return struct(
        verdict = "hold",
        reason = _filled(reason, "reason", "hold"),
        token = _token(token, "hold"),
        at = at,
        short = _short(short),
        whole_queue = whole_queue,
    )

def queue_attributes(**defaults):
    return struct(**defaults)
"""
)
