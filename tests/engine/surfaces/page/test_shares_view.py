"""The screens of the tree of queues: columns, the scale of bars, a cluster without a tree."""

import msgspec
import pytest

from engine.surfaces.live.share_answers import ShareRow, SharesPage
from engine.surfaces.page.rendering import render_content, render_page
from engine.surfaces.page.screens import SHARE, SHARES
from engine.surfaces.page.shares_view import Bar, SharesView, share_view, shares_view
from tests.engine.surfaces.page import answers
from tests.engine.surfaces.page.answers import share, standing


def _view(*rows: ShareRow, resources: tuple[str, ...] = ("cpu",), **asked: str) -> SharesView:
    return shares_view(answers.shares(*rows, resources=resources), asked)


def _bars(view: SharesView) -> dict[str, Bar]:
    return {one.row.path: one.cells[0].bar for one in view.rows if one.cells[0] is not None}


def test_bars_of_queues_under_one_parent_have_one_scale() -> None:
    bars = _bars(
        _view(
            share("a", standing(1000, 0, 4000)),
            share("b", standing(6000, 2000, 4000)),
            share("b/x", standing(1, 0, 1)),
            share("b/y", standing(0, 2, 1)),
        )
    )
    assert (bars["a"].own, bars["a"].share) == (12.5, 50.0)
    assert (bars["b"].own, bars["b"].borrowed, bars["b"].waiting) == (50.0, 25.0, 25.0)
    assert (bars["b/x"].own, bars["b/x"].share) == (50.0, 50.0)
    assert (bars["b/y"].waiting, bars["b/y"].share) == (100.0, 50.0)


def test_the_root_is_measured_by_itself() -> None:
    bars = _bars(_view(share("", standing(0, 0, 100_000)), share("a", standing(10, 0, 10))))
    assert bars["a"].own == 100.0


def test_nothing_at_all_is_no_bar() -> None:
    bar = _bars(_view(share("a", standing(0, 0, 0))))["a"]
    assert (bar.own, bar.borrowed, bar.waiting, bar.share) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("shared", "asked", "want", "others"),
    [
        pytest.param(("memory", "gpu"), "", ("memory", "gpu"), ("cpu", "pods"), id="shared ones"),
        pytest.param((), "", ("cpu", "memory", "gpu"), ("pods",), id="all, if none is shared"),
        pytest.param(("cpu",), "pods", ("pods",), (), id="the one that is asked for"),
    ],
)
def test_what_is_shared_has_columns(
    shared: tuple[str, ...], asked: str, want: tuple[str, ...], others: tuple[str, ...]
) -> None:
    names = ("cpu", "gpu", "memory", "pods")
    row = share(
        "a",
        standing(1),
        resources={name: standing(2, 0, 1 if name in shared else None) for name in names},
    )
    view = _view(row, resources=names, resource=asked)
    assert (view.resources, view.not_shown) == (want, others)


def test_what_a_bar_says() -> None:
    bars = _bars(_view(share("a", standing(1000, 3000, 2000)), share("b", standing(500))))
    assert bars["a"].label == "1 used of a share of 2, 3 waiting, 1 lacking"
    assert bars["b"].label == "0.5 used"


def test_tabs_have_the_states_and_keep_the_other_filters() -> None:
    view = shares_view(answers.shares(), {"queue": "a"})
    assert [(tab.place, tab.count, tab.address) for tab in view.tabs] == [
        ("", 4, "?queue=a"),
        ("starved", 2, "?queue=a&state=starved"),
        ("borrowing", 1, "?queue=a&state=borrowing"),
    ]


def test_filters_go_on_to_the_next_page() -> None:
    view = shares_view(answers.shares(next="200"), {"queue": "a&b", "continue": "100"})
    assert view.next == "?queue=a%26b&continue=200"
    assert view.is_filtered


def test_a_screen_without_a_tree_says_what_to_do() -> None:
    page = SharesPage(
        revision=answers.REVISION,
        at=answers.AT,
        leader=answers.LEADER,
        headline="No QueueTree.",
        next_step="Put one there.",
    )
    text = render_content(SHARES, page, {})
    assert "Put one there." in text
    assert "<table" not in text
    assert "<form" not in text


def test_what_is_not_listed_is_counted() -> None:
    page = answers.shares(problems_left_out=7, pairs_left_out=1200)
    text = render_content(SHARES, page, {})
    assert "7 more problems are not listed." in text
    assert "1,200 smaller pairs are not listed." in text


def test_one_queue_is_named_in_the_title_and_has_its_attributes() -> None:
    page = render_page(
        SHARE, answers.one_share(), asked={}, command="curl", address="/queues/web", nonce="n"
    )
    assert "<title>web · starsched</title>" in page
    assert "<dt>weight</dt><dd>3</dd>" in page
    assert "not given back" in page


def test_the_columns_of_pods_are_what_they_request() -> None:
    assert share_view(answers.one_share()).requested == ("cpu", "memory")


def test_what_was_used_has_a_column_if_it_is_kept() -> None:
    one = answers.one_share()
    used = {n: msgspec.structs.replace(s, usage=437) for n, s in one.queue.resources.items()}
    row = msgspec.structs.replace(one.queue, resources=used)
    assert "Used in the past" not in render_content(SHARE, one, {})
    text = render_content(SHARE, answers.one_share(queue=row), {})
    assert "Used in the past" in text
    assert '<td class="num">44%</td>' in text


def test_what_is_held_and_who_gave_back_is_shown() -> None:
    text = render_content(SHARES, answers.shares(held_left_out=3, reversals=2), {})
    assert "QuotaReached" in text
    assert "4 cpu" in text
    assert "8 waiting, 7 held" in text
    assert "3 more are not listed." in text
    assert "shop/batch-1, shop/batch-4" in text
    assert "1 pod, stage 1" in text
    assert "not yours to see" in text
    assert "In all, 2 took back what had just been taken." in text
    assert 'href="/queues/sound"' not in text, "it is not there"
    one = render_content(SHARE, answers.one_share(), {})
    assert "<dt>Next</dt>" in one
    assert "checkout-1" in one


def test_without_turns_there_is_nothing_of_them() -> None:
    text = render_content(SHARES, answers.shares(held=(), reclaims=()), {})
    assert "What stands still" not in text
    assert "Who gave back" not in text
