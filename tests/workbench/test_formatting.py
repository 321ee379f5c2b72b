"""One way of writing Starlark; the same meaning before and after."""

import ast
import io
import itertools
import random
import time
import tokenize
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.searching import examples
from workbench.formatting import FormatError, formatted

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted([*(ROOT / "policies").rglob("*.star"), *(ROOT / "deploy").rglob("*.star")])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_files_are_formatted(path: Path) -> None:
    text = path.read_text()
    assert formatted(text) == text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("f( a=1,b =-2 )\n", "f(a = 1, b = -2)\n", id="arguments"),
        pytest.param("x=a+b*-c\n", "x = a + b * -c\n", id="operators"),
        pytest.param("x={'a':1,'b' :[ 1,2 ]}\n", 'x = {"a": 1, "b": [1, 2]}\n', id="a dict"),
        pytest.param("x = a [1] [2:-1] (3)\n", "x = a[1][2:-1](3)\n", id="index, slice, call"),
        pytest.param("x = 'say \"a\"'\n", "x = 'say \"a\"'\n", id="quotes that are needed"),
        pytest.param("x = 'a\\'b'\n", "x = 'a\\'b'\n", id="escapes stay"),
        pytest.param("x = f'{a!r:>{b}} {{'\n", "x = f'{a!r:>{b}} {{'\n", id="an f-string"),
        pytest.param("x = r'\\d'\n", "x = r'\\d'\n", id="a raw string"),
        pytest.param("x = '''a\n  'b'\n'''\n", 'x = """a\n  \'b\'\n"""\n', id="triple quotes"),
        pytest.param("x = 1 #a\n#b\n", "x = 1  # a\n# b\n", id="comments"),
        pytest.param("x = lambda a,*b:not a\n", "x = lambda a, *b: not a\n", id="a lambda"),
        pytest.param("def f(*a,**b):return(a)\n", "def f(*a, **b): return (a)\n", id="a function"),
        pytest.param(
            "def f( a:int )->str :\n  pass", "def f(a: int) -> str:\n    pass\n", id="types"
        ),
        pytest.param(
            "def f():\n\n  if x :\n       y=1\n  #z\n  else:\n    pass\nX=1",
            "def f():\n    if x:\n        y = 1\n    # z\n    else:\n        pass\n\nX = 1\n",
            id="indentation",
        ),
        pytest.param(
            "X = 1\n#about f\ndef f():\n    pass\n\n\n\ndef g():\n    pass\n\n",
            "X = 1\n\n# about f\ndef f():\n    pass\n\ndef g():\n    pass\n",
            id="blank lines",
        ),
        pytest.param(
            "def f():\n  x = g(\n    a,#b\n\n    c)\n",
            "def f():\n    x = g(\n      a,  # b\n\n      c)\n",
            id="lines in brackets move with the first",
        ),
        pytest.param("x = 1 + \\\n    2\n", "x = 1 + \\\n    2\n", id="a joined line"),
        pytest.param("x=1 .real+y . z\n", "x = 1 .real + y.z\n", id="a field of a number"),
        pytest.param("x = 1\r\ny = 2\r\n", "x = 1\ny = 2\n", id="Windows line ends"),
        pytest.param("def f():\n\tpass\n", "def f():\n    pass\n", id="tabs"),
        pytest.param(
            "def f():\n\tx = [\n\t\t1, # a\n\t  \t# b\n\t]\n",
            "def f():\n    x = [\n        1,  # a\n        # b\n    ]\n",
            id="tabs inside brackets",
        ),
        pytest.param("", "", id="nothing"),
        pytest.param("# only a comment", "# only a comment\n", id="a comment alone"),
        pytest.param('"""Doc."""\nX = 1\n', '"""Doc."""\n\nX = 1\n', id="after the docstring"),
    ],
)
def test_the_one_way(text: str, want: str) -> None:
    assert formatted(text) == want
    assert formatted(want) == want


@pytest.mark.parametrize("text", ["def f(:\n", "x = 'a\n", "  x = 1\n", "x = 1\0"])
def test_text_that_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        formatted(text)


@pytest.mark.parametrize("text", ["x = 1\ny=1\rz=2\n", "x = 1\ny=1\rz=2\r"])
def test_a_line_that_ends_as_no_line_does_is_named(text: str) -> None:
    """It was a traceback, and the files after it were not formatted; or a line 0."""
    with pytest.raises(FormatError, match="2: a carriage return alone ends no line"):
        formatted(text)


def _other_way(text: str, chance: random.Random) -> str:
    """*text* with other spaces between the tokens of a line; the meaning stays."""
    lines = text.split("\n")
    for token, after in reversed(_pairs(text)):
        row, column = token.end
        if (row, column) == after.start and token.type == after.type == tokenize.NAME:
            continue
        needs = (
            token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
            and after.type in (tokenize.NAME, tokenize.NUMBER, tokenize.STRING)
        ) or after.start[1] != column
        spaces = " " * chance.randint(1 if needs else 0, 3)
        line = lines[row - 1]
        lines[row - 1] = line[:column] + spaces + line[after.start[1] :]
    return "\n".join(lines)


def _pairs(text: str) -> list[tuple[tokenize.TokenInfo, tokenize.TokenInfo]]:
    """Neighbours on one line, slices left out: there the author's spaces stay."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    skipped = (tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.NEWLINE)
    return [
        (a, b)
        for a, b in itertools.pairwise(tokens)
        if a.type not in skipped and b.type not in skipped and a.end[0] == b.start[0]
        if ":" not in (a.string, b.string) and b.type != tokenize.ENDMARKER
        if "FSTRING" not in tokenize.tok_name[a.type] + tokenize.tok_name[b.type]
    ]


@pytest.mark.slow("compares much")
@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(SHIPPED), st.randoms(use_true_random=False))
def test_whatever_the_spaces_were_the_result_is_the_same(path: Path, chance: random.Random) -> None:
    text = path.read_text()
    other = _other_way(text, chance)
    assert ast.dump(ast.parse(other)) == ast.dump(ast.parse(text))
    assert formatted(other) == text


def test_a_long_file_takes_as_long_as_its_parts() -> None:
    """Each token looked through all those after it: 20,000 functions took more than a minute."""
    comments = "".join(f"        # {number}\n" for number in range(20_000))
    text = f"def filter(pod, node):\n{comments}    return None\n"
    began = time.perf_counter()
    assert formatted(text).count("\n") == 20_002
    assert time.perf_counter() - began < 20
