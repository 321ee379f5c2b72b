"""How answers name the owner of a pod."""

from engine.core.model.pod import Pod


def owner_text(pod: Pod) -> str:
    """`ReplicaSet/web-6d5f`: the controller of *pod*; empty if there is none."""
    controller = pod.controller
    return "" if controller is None else f"{controller.kind}/{controller.name}"
