"""Which attribute names occur in a policy."""

import pytest

from engine.policy.attributes import attributes_read

SCORE = "def score(pod, node, counts):\n    return counts[0].here\n"


@pytest.mark.parametrize(
    ("normalize", "fields"),
    [
        ("def normalize(score, over):\n    return score - over.min\n", {"here"}),
        ("def normalize(score, range):\n    return score - range.min\n", {"here"}),
        ("def normalize(score, over):\n    over = other\n    return over.min\n", {"here", "min"}),
        ("def normalize(score, over):\n    return getattr(over, 'min')\n", {"here", "min"}),
        ("def other(score, over):\n    return score - over.min\n", {"here", "min"}),
        ("def normalize(score, over):\n    return counts.max - over.min\n", {"here", "max"}),
    ],
)
def test_what_normalize_reads_of_the_range_is_no_field_of_a_counter(
    normalize: str, fields: set[str]
) -> None:
    files = {"p.star": SCORE + normalize}
    assert attributes_read(files, "p.star", without_ranges=True) == frozenset(fields)


def test_without_that_every_attribute_counts() -> None:
    files = {"p.star": "def normalize(score, over):\n    return score * over.count\n"}
    assert attributes_read(files, "p.star") == frozenset({"count"})


def test_loaded_files_count_too_and_one_that_does_not_parse_hides_nothing() -> None:
    files = {"p.star": 'load("q.star", "f")\n', "q.star": "def f(x):\n    return x.total\n"}
    read = attributes_read(files, "p.star")
    assert read is not None
    assert "total" in read
    assert attributes_read({**files, "q.star": "def f(x:\n"}, "p.star") is None
