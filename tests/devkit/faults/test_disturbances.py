"""Single faults of calm worlds."""

from devkit.faults.disturbances import OF_A_WORLD, disturbances, of_world


def test_each_has_a_name_of_its_own_and_a_world_has_a_part_of_them() -> None:
    names = [one.name for one in disturbances()]
    assert len(set(names)) == len(names) > OF_A_WORLD


def test_worlds_in_a_row_have_all_of_them() -> None:
    all_names = {one.name for one in disturbances()}
    worlds = -(-len(all_names) // OF_A_WORLD)
    for first in (1, 7, 71_000):
        seeds = range(first, first + worlds)
        assert {one.name for seed in seeds for one in of_world(seed)} == all_names
