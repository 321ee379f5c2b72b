"""What a process says that it is at."""

from engine.policy.whereabouts import CALL, TEST, Whereabouts


def test_each_level_has_a_thing_of_its_own_that_is_under_way() -> None:
    place = Whereabouts()
    place.begin(TEST, place.label("x_test.star::test_a"))
    place.begin(CALL, place.label("x.star:1: filter()"))
    assert (place.text(TEST), place.text(CALL)) == ("x_test.star::test_a", "x.star:1: filter()")
    place.end(CALL)
    assert (place.text(TEST), place.text(CALL)) == ("x_test.star::test_a", "")


def test_two_of_one_name_are_two() -> None:
    place = Whereabouts()
    label = place.label("x.star:1: filter()")
    assert place.label("x.star:1: filter()") == label
    numbers = set()
    for _ in range(3):
        place.begin(CALL, label)
        numbers.add(place.number(CALL))
    assert len(numbers) == 3


def test_names_beyond_what_the_memory_holds_are_not_told() -> None:
    place = Whereabouts()
    labels = [place.label(f"{number}{'é' * 3000}") for number in range(400)]
    assert labels[-1] == 0
    place.begin(CALL, labels[-1])
    assert place.number(CALL) > 0
    assert place.text(CALL) == ""
    place.begin(CALL, labels[0])
    assert place.text(CALL).startswith("0é")
