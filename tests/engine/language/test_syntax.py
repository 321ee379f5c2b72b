"""What is plain to see in the source of policies, and how it is written back."""

import ast

import pytest

from engine.language.syntax import written


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("pod.labels['a']", 'pod.labels["a"]'),
        ("f('a', \"it's\")", 'f("a", "it\'s")'),
        ("'say \"a\"' + 'b'", '\'say "a"\' + "b"'),
        (r"'\n' + '\\'", r'"\n" + "\\"'),
        (r"'it\'s \"a\"' + ''", r"""'it\'s "a"' + "" """.strip()),
    ],
)
def test_texts_are_written_in_double_quotes_where_that_is_the_same(
    expression: str, want: str
) -> None:
    node = ast.parse(expression, mode="eval").body
    assert written(node) == want
    assert ast.dump(ast.parse(want, mode="eval").body) == ast.dump(node)
