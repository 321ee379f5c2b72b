"""Pods that were rejected and wait for an event that could help, and gated pods.

Owns the index by which an event is checked only for pods that it may concern, and only once for
many pods that are alike. Not a queue: nothing here has an order.
"""

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field

import msgspec

from engine.core.model.objects import Volume
from engine.core.model.pod import Pod
from engine.core.queueing.hints import Label, Labels, label_waited_for, labels_looked_at
from engine.core.queueing.queued_pod import QueuedPod

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(slots=True, eq=False)
class Alike:
    """Pods rejected, or gated, by the same plugins, which events affect in the same way.

    But for events that are `is_by_label`, and for what nominations decide.

    Attributes:
        obstacles: The plugins that have to change their mind.
        is_gated: These gate the pods, instead of having rejected them.
        waits_for: A label without which no placed pod helps them; None if any may.
        pods: By uid; never empty while it is in the index.
    """

    obstacles: frozenset[str]
    is_gated: bool
    waits_for: Label | None
    pods: dict[str, QueuedPod] = field(default_factory=dict)

    def other_than(self, uid: str | None) -> Iterator[QueuedPod]:
        """Its pods but that of *uid*."""
        return (queued for one, queued in self.pods.items() if one != uid)


_Key = tuple[frozenset[str], bool, bytes, Labels]


class UnschedulablePods:
    """Pods by uid, and by each plugin that rejected or gates them.

    For a gated pod that is its gate alone, whatever rejected it before.
    """

    def __init__(self) -> None:
        # In the order in which they were set aside, so that the flush finds the oldest first.
        self._pods: dict[str, QueuedPod] = {}
        self._key_of: dict[str, _Key] = {}
        self._alike: dict[_Key, Alike] = {}
        # By plugin, whether it gates, and what label is waited for.
        self._by_plugin: dict[tuple[str, bool], dict[Label | None, dict[_Key, Alike]]] = {}
        self._gated_count = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    @property
    def gated_count(self) -> int:
        """How many of them are gated."""
        return self._gated_count

    @staticmethod
    def obstacles(queued: QueuedPod) -> frozenset[str]:
        """The plugins that have to change their mind."""
        if queued.gated_by is not None:
            return frozenset((queued.gated_by,))
        return queued.rejectors

    def add(self, queued: QueuedPod) -> None:
        """Set a pod aside since its last move. Its obstacles must not change while it is here."""
        self._pods[queued.uid] = queued
        self._gated_count += queued.gated_by is not None
        self._file(queued)

    def remove(self, queued: QueuedPod) -> None:
        """Remove a pod."""
        del self._pods[queued.uid]
        self._gated_count -= queued.gated_by is not None
        self._unfile(queued)

    def follow(self, queued: QueuedPod) -> None:
        """Note a new version of a pod that is here."""
        self._unfile(queued)
        self._file(queued)

    def _file(self, queued: QueuedPod) -> None:
        obstacles, is_gated = self.obstacles(queued), queued.gated_by is not None
        known = queued.traits
        if known is None or known[0] is not queued.pod:
            known = queued.traits = (queued.pod, traits(queued.pod))
        key = (obstacles, is_gated, known[1], labels_looked_at(queued.pod, obstacles))
        alike = self._alike.get(key)
        if alike is None:
            waits_for = label_waited_for(queued.pod, obstacles)
            alike = self._alike[key] = Alike(obstacles, is_gated, waits_for)
            for plugin in obstacles:
                peers = self._by_plugin.setdefault((plugin, is_gated), {})
                peers.setdefault(waits_for, {})[key] = alike
        alike.pods[queued.uid] = queued
        self._key_of[queued.uid] = key

    def _unfile(self, queued: QueuedPod) -> None:
        key = self._key_of.pop(queued.uid)
        alike = self._alike[key]
        del alike.pods[queued.uid]
        if alike.pods:
            return
        del self._alike[key]
        for plugin in alike.obstacles:
            peers = self._by_plugin[plugin, alike.is_gated]
            del peers[alike.waits_for][key]
            if not peers[alike.waits_for]:
                del peers[alike.waits_for]
            if not peers:
                del self._by_plugin[plugin, alike.is_gated]

    def held_by(
        self, concerns: Callable[[str, bool], bool], offered: Set[Label] | None = None
    ) -> list[Alike]:
        """The pods with an obstacle that *concerns* accepts, each once.

        Args:
            concerns: Called with a plugin, and whether it gates pods.
            offered: Without those that wait for a label that is not among these, if given.
        """
        found: dict[int, Alike] = {}
        for (plugin, is_gate), peers in self._by_plugin.items():
            if not concerns(plugin, is_gate):
                continue
            labels = peers.keys() if offered is None else peers.keys() & {*offered, None}
            for label in labels:
                found.update((id(one), one) for one in peers[label].values())
        return list(found.values())

    def held_since(self, moment: float) -> list[QueuedPod]:
        """The pods that have been set aside at or before *moment*; costs what it finds."""
        found = []
        for queued in self._pods.values():
            if queued.moved_at > moment:
                break
            found.append(queued)
        return found

    def oldest(self) -> float | None:
        """When the pod that waits longest was set aside; None when empty."""
        return next((queued.moved_at for queued in self._pods.values()), None)

    def check_invariants(self) -> None:
        """Raise `AssertionError` if the index or the count of gated pods is wrong."""
        by_plugin: dict[tuple[str, bool], set[str]] = {}
        for uid, queued in self._pods.items():
            is_gated = queued.gated_by is not None
            obstacles = self.obstacles(queued)
            assert queued.uid == uid, f"`{queued.pod.key}` is filed under another uid"
            assert obstacles, f"`{queued.pod.key}` waits for nothing"
            labels = labels_looked_at(queued.pod, obstacles)
            key = (obstacles, is_gated, traits(queued.pod), labels)
            assert self._key_of[uid] == key, f"`{queued.pod.key}` is filed under another version"
            for plugin in obstacles:
                by_plugin.setdefault((plugin, is_gated), set()).add(uid)
        got = {
            plugin: {
                uid
                for label, alike in peers.items()
                for one in alike.values()
                for uid, queued in one.pods.items()
                if label_waited_for(queued.pod, self.obstacles(queued)) == label
            }
            for plugin, peers in self._by_plugin.items()
        }
        assert got == by_plugin, "index is wrong"
        assert all(one.pods for one in self._alike.values()), (
            "a group of pods that are alike is empty"
        )
        assert self._key_of.keys() == self._pods.keys(), "a pod that is gone is still filed"
        since = [queued.moved_at for queued in self._pods.values()]
        assert since == sorted(since), "pods are not in the order in which they were set aside"
        gated = sum(queued.gated_by is not None for queued in self._pods.values())
        assert gated == self._gated_count, "the count of gated pods is wrong"


def traits(pod: Pod) -> bytes:
    """Everything of a pod but labels that decides how events about other objects affect it.

    Not its name and uid, so that the pods of a workload have the same; nor what is random in each,
    such as the name of the volume with its token.
    """
    manifest = pod.manifest
    spec = manifest.spec
    volumes = [_traits_of_volume(v) for v in spec.volumes]
    spec = msgspec.structs.replace(spec, volumes=tuple(v for v in volumes if v != _NO_VOLUME))
    controller = pod.controller
    # Claims that are made for the pod are named after it.
    is_named = any(v.ephemeral is not None for v in volumes)
    return _encode(
        (
            pod.namespace,
            spec,
            manifest.status.resource_claim_statuses,
            None if controller is None else controller.uid,
            pod.name if is_named else "",
        )
    )


_NO_VOLUME = Volume()


def _traits_of_volume(volume: Volume) -> Volume:
    return volume if volume.ephemeral is not None else msgspec.structs.replace(volume, name="")
