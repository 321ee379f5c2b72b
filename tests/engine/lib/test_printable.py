"""Control characters are written out by one function, whoever writes."""

import json
import sys
import unicodedata

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lib import printable
from engine.lib.printable import LONGEST_TEXT, printable_json, printable_lines, short
from tests.engine.lib.hostile import HOSTILE, raw_in


@pytest.mark.parametrize("code", range(0x20), ids=hex)
def test_no_character_below_a_space_is_left_on_one_line(code: int) -> None:
    assert printable.printable(f"a{chr(code)}b") == f"a\\x{code:02x}b"


def test_every_character_that_is_a_command_or_nothing_is_written_out() -> None:
    """Of all of Unicode: controls, what sets directions, joins or is not seen, and halves."""
    hidden = {"Cc", "Zl", "Zp", "Cs"}
    left = [
        chr(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.category(chr(code)) in hidden
        or unicodedata.bidirectional(chr(code)) in {"LRE", "RLE", "PDF", "LRO", "RLO"}
        or unicodedata.bidirectional(chr(code)) in {"LRI", "RLI", "FSI", "PDI", "BN"}
    ]
    assert [hex(ord(c)) for c in left if printable.printable(c) == c] == []


@given(st.text())
def test_what_people_read_stays_as_it_is(text: str) -> None:
    shown = printable.printable(text)
    assert not raw_in(shown)
    assert "\n" not in shown
    if not raw_in(text) and shown != text:
        assert any(unicodedata.category(c) in {"Cc", "Cf", "Mn", "Lo", "Cn"} for c in text)
    assert printable.printable(shown) == shown


@pytest.mark.parametrize(
    "text", ["zurück", "日本語", "שלום", "a\u00a0b", "❤️", "n/a — [x]", "\\x1b"]
)
def test_letters_of_all_scripts_are_kept(text: str) -> None:
    assert printable.printable(text) == printable_lines(text) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_json_means_the_same(text: str) -> None:
    document = msgspec.json.encode({"a": text + HOSTILE.replace("\x00", "")})
    written = printable_json(document)
    assert json.loads(written) == json.loads(document)
    assert not raw_in(written.decode())


@pytest.mark.parametrize("length", [LONGEST_TEXT, LONGEST_TEXT + 1, 100_000])
@pytest.mark.parametrize("character", ["w", "\x1b", "\U000e0041"])
def test_a_text_of_others_has_an_end(character: str, length: int) -> None:
    shown = short(character * length)
    assert len(shown) <= LONGEST_TEXT
    assert shown.endswith(" ...") is (length > LONGEST_TEXT or character != "w")
