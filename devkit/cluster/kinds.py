"""The kinds that the server serves: those whose manifests can be read."""

from engine.core.manifests.kinds import BY_MANIFEST, BY_PATH, KINDS

__all__ = ["BY_MANIFEST", "BY_PATH", "KINDS"]
