"""All plugins of the runtime.

Owns which there are. Deciding needs nothing but the snapshot; what is reserved and written needs
the store of the running scheduler and the writers.
"""

from engine.core.caching.objects import ObjectStore
from engine.core.scheduling.plugins.claim_plan import ClaimReturns, ClaimWriter
from engine.core.scheduling.plugins.dynamic_resources import DynamicResources
from engine.core.scheduling.plugins.volume_binding import VolumeBinding
from engine.core.scheduling.plugins.volume_plan import VolumeWriter
from engine.core.scheduling.runtime_plugin import RuntimePlugin
from engine.lib.clock import Clock


def make_plugins(
    objects: ObjectStore | None = None,
    *,
    volumes: VolumeWriter | None = None,
    claims: ClaimWriter | None = None,
    claim_returns: ClaimReturns | None = None,
    clock: Clock | None = None,
) -> dict[str, RuntimePlugin]:
    """The plugins by name; without arguments they decide, and nothing is carried out."""
    made: tuple[RuntimePlugin, ...] = (
        VolumeBinding(objects, volumes),
        DynamicResources(objects, claims, clock, claim_returns),
    )
    return {plugin.name: plugin for plugin in made}
