"""How long the property tests search: the same few cases in `check`, many random ones by night."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "check",
    derandomize=True,
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly", settings.get_profile("check"), derandomize=False, max_examples=3000
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "check"))
