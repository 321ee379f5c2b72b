"""Single faults of calm worlds."""

from engine.fault_simulation.disturbances import OF_A_WORLD, disturbances


def test_each_has_a_name_of_its_own_and_a_world_has_a_part_of_them() -> None:
    names = [one.name for one in disturbances()]
    assert len(set(names)) == len(names) > OF_A_WORLD
