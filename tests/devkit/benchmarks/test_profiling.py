import cProfile

from devkit.benchmarks.profiling import seconds_by_module, seconds_by_stage, slowest_functions
from engine.core.model.quantity import milli_value


def test_time_counts_for_the_engine_module_that_spent_it() -> None:
    profile = cProfile.Profile()
    with profile:
        for n in range(20_000):
            milli_value(f"{n}m")
        sum(range(1000))
    modules = seconds_by_module(profile)
    assert next(iter(modules)) == "engine.core.model.quantity"
    stages = seconds_by_stage(modules)
    assert next(iter(stages)) == "decode objects, request arithmetic"
    assert sum(stages.values()) == sum(modules.values())
    assert any("engine.core.model.quantity" in line for line in slowest_functions(profile))
