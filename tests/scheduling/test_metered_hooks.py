"""Every hook has its extension point in the metrics."""

from engine.framework.extension_points import HOOKS
from engine.rollout.metered import EXTENSION_POINTS


def test_every_hook_is_counted_at_an_extension_point() -> None:
    assert set(EXTENSION_POINTS) == set(HOOKS)
