"""The keyed heap: order, replacement, removal, and not growing with dead entries."""

from engine.lib.heap import KeyedHeap


def drain(heap: KeyedHeap[str, str]) -> list[str]:
    items = []
    while (item := heap.pop()) is not None:
        items.append(item)
    return items


def test_items_come_out_by_order_and_equal_ones_first_in_first_out() -> None:
    heap: KeyedHeap[str, str] = KeyedHeap()
    for key, order in (("c", 2), ("a", 1), ("d", 2), ("b", 1)):
        heap.push(key, key.upper(), order)
    assert heap.peek() == "A"
    assert drain(heap) == ["A", "B", "C", "D"]
    assert heap.peek() is None


def test_a_replaced_item_takes_its_new_place() -> None:
    heap: KeyedHeap[str, str] = KeyedHeap()
    heap.push("a", "old", 1)
    heap.push("b", "b", 2)
    heap.push("a", "new", 3)
    assert (len(heap), heap.get("a")) == (2, "new")
    assert drain(heap) == ["b", "new"]


def test_a_removed_item_never_comes_out() -> None:
    heap: KeyedHeap[str, str] = KeyedHeap()
    heap.push("a", "a", 1)
    heap.push("b", "b", 2)
    assert heap.remove("a") == "a"
    assert heap.remove("a") is None
    assert "a" not in heap
    assert drain(heap) == ["b"]


def test_an_item_removed_and_pushed_again_comes_out_once() -> None:
    heap: KeyedHeap[str, str] = KeyedHeap()
    heap.push("a", "first", 1)
    heap.remove("a")
    heap.push("a", "second", 1)
    assert drain(heap) == ["second"]


def test_dead_entries_do_not_pile_up() -> None:
    heap: KeyedHeap[str, str] = KeyedHeap()
    for order in range(10_000):
        heap.push("a", "a", order)
    heap.check_invariants()
    assert len(heap._entries) < 100
