"""What a process reports that it is running."""

from engine.policy.current_hook import CALL, TEST, CurrentHook


def test_each_level_reports_its_own() -> None:
    place = CurrentHook()
    place.begin(TEST, place.label("x_test.star::test_a"))
    place.begin(CALL, place.label("x.star:1: filter()"))
    assert (place.text(TEST), place.text(CALL)) == ("x_test.star::test_a", "x.star:1: filter()")
    place.end(CALL)
    assert (place.text(TEST), place.text(CALL)) == ("x_test.star::test_a", "")


def test_two_starts_with_the_same_label_differ() -> None:
    place = CurrentHook()
    label = place.label("x.star:1: filter()")
    assert place.label("x.star:1: filter()") == label
    numbers = set()
    for _ in range(3):
        place.begin(CALL, label)
        numbers.add(place.number(CALL))
    assert len(numbers) == 3


def test_labels_beyond_what_the_memory_holds_are_not_reported() -> None:
    place = CurrentHook()
    labels = [place.label(f"{number}{'é' * 3000}") for number in range(400)]
    assert labels[-1] == 0
    place.begin(CALL, labels[-1])
    assert place.number(CALL) > 0
    assert place.text(CALL) == ""
    place.begin(CALL, labels[0])
    assert place.text(CALL).startswith("0é")
