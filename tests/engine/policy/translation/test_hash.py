"""`hash()` of any text is in Python what the interpreter says."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.policy.translation.both_ways import BothWays

BOTH = BothWays("def among_0(pod, node):\n    return hash(node.name)\n", 1)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_the_hash_of_a_text_is_that_of_the_interpreter(text: str) -> None:
    assert not isinstance(BOTH.translated[0], str)
    node = msgspec.json.encode({"name": text})
    assert BOTH.run(0, b"{}", node) == BOTH.interpret(0, b"{}", node)
    assert BOTH.run(0, b"{}", node).problem == ""
