"""Quantities: every suffix, exactness, rounding and bad input."""

import pytest

from engine.core.model.quantity import (
    INT64_MAX,
    QuantityError,
    canonical_text,
    format_of,
    milli_value,
    nano_value,
    resource_amount,
    whole_value,
)


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        pytest.param("0", 0, id="zero"),
        pytest.param("1", 1000, id="whole"),
        pytest.param("+1", 1000, id="plus sign"),
        pytest.param("100m", 100, id="milli"),
        pytest.param("1.5", 1500, id="decimal point"),
        pytest.param(".5", 500, id="nothing before the point"),
        pytest.param("5.", 5000, id="nothing after the point"),
        pytest.param("007", 7000, id="leading zeros"),
        pytest.param("1u", 1, id="micro rounds up"),
        pytest.param("1n", 1, id="nano rounds up"),
        pytest.param("1000001u", 1001, id="a little more rounds up"),
        pytest.param("2k", 2_000_000, id="kilo"),
        pytest.param("1e3", 1_000_000, id="small exponent letter"),
        pytest.param("1E3", 1_000_000, id="large exponent letter"),
        pytest.param("25e-2", 250, id="negative exponent"),
        pytest.param("1E+2", 100_000, id="signed exponent"),
        pytest.param("1Ki", 1_024_000, id="binary"),
        pytest.param("0.5Ki", 512_000, id="half a binary unit"),
        pytest.param(2, 2000, id="an int as sent"),
        pytest.param(0.1, 100, id="a float means its decimal text"),
        pytest.param(1e-7, 1, id="a tiny float"),
    ],
)
def test_milli_value_is_exact_and_rounds_up(quantity: str | int | float, want: int) -> None:
    assert milli_value(quantity) == want


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        pytest.param("1k", 10**3, id="k"),
        pytest.param("1M", 10**6, id="M"),
        pytest.param("1G", 10**9, id="G"),
        pytest.param("1T", 10**12, id="T"),
        pytest.param("1P", 10**15, id="P"),
        pytest.param("1E", 10**18, id="E"),
        pytest.param("1Ki", 2**10, id="Ki"),
        pytest.param("1Mi", 2**20, id="Mi"),
        pytest.param("1Gi", 2**30, id="Gi"),
        pytest.param("1Ti", 2**40, id="Ti"),
        pytest.param("1Pi", 2**50, id="Pi"),
        pytest.param("1Ei", 2**60, id="Ei"),
        pytest.param("1.5Gi", 3 * 2**29, id="fraction of a binary unit"),
        pytest.param("100m", 1, id="less than one rounds up"),
        pytest.param("9007199254740993", 2**53 + 1, id="beyond a float's integers"),
        pytest.param("7999M", 7_999_000_000, id="decimal megabytes"),
    ],
)
def test_whole_value_knows_every_suffix(quantity: str, want: int) -> None:
    assert whole_value(quantity) == want


@pytest.mark.parametrize("quantity", ["8Ei", "1e50", "1e999999999", "9" * 40, 10**40])
def test_huge_quantities_saturate(quantity: str | int) -> None:
    assert whole_value(quantity) == INT64_MAX
    assert milli_value(quantity) == INT64_MAX


def test_what_is_finer_than_nano_rounds_up_to_one_nano() -> None:
    assert nano_value("1e-999999999") == 1
    assert nano_value("0.0000000001") == 1
    assert nano_value("0e-999999999") == 0


def test_negative_quantities_round_away_from_zero() -> None:
    assert milli_value("-1500m") == -1500
    assert whole_value("-1500m") == -2


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "+", "-", ".", "abc", "1 ", " 1", "1KiB", "1kb", "e5", "1e", "1e+", "0x10",
        "--1", "1_000", "inf", "nan", "1m5", "m", "Ki", "1ki", "1K", "١", "1" * 300, "1\n",
    ],
)  # fmt: skip
def test_what_is_not_a_quantity_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(QuantityError, match=r"want a quantity, got `"):
        whole_value(text)


def test_cpu_counts_in_millicores_and_all_else_in_whole_units() -> None:
    assert resource_amount("cpu", "1500m") == 1500
    assert resource_amount("memory", "1500m") == 2
    assert resource_amount("nvidia.com/gpu", "4") == 4


@pytest.mark.parametrize(
    ("quantity", "want"),
    [
        pytest.param("1536Mi", "1536Mi", id="not whole in a larger suffix"),
        pytest.param("1024Mi", "1Gi", id="larger suffix"),
        pytest.param("0.5Gi", "512Mi", id="fraction"),
        pytest.param("1.5Ki", "1536", id="no suffix left"),
        pytest.param("1000Ki", "1000Ki", id="a format is kept"),
        pytest.param("10000", "10k", id="decimal suffix"),
        pytest.param("2.5G", "2500M", id="decimal fraction"),
        pytest.param("1.5", "1500m", id="milli"),
        pytest.param("100n", "100n", id="nano"),
        pytest.param("1000e3", "1e6", id="exponent"),
        pytest.param("1e-3", "1e-3", id="negative exponent"),
        pytest.param("-3Gi", "-3Gi", id="negative"),
        pytest.param(1024, "1024", id="number"),
        pytest.param("0Ki", "0", id="zero"),
    ],
)
def test_the_canonical_text_keeps_the_format(quantity: str | int, want: str) -> None:
    assert canonical_text(nano_value(quantity), format_of(quantity)) == want
