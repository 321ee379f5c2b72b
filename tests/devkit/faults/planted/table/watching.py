"""Faults of watching: changes that are missed, repeated or misread, and connections."""

from typing import Final

from tests.devkit.faults.planted.fault import PlantedFault

WATCHING: Final = (
    PlantedFault(
        "deletions are ignored",
        "engine/io/watching/reflector.py",
        "                        version = sink.remove(event.object)\n",
        '                        version = ""\n',
        "Pods and nodes that were deleted count until the next list.",
    ),
    PlantedFault(
        "expired watch is not listed again",
        "engine/io/watching/reflector.py",
        "                    self._backoff.next()\n"
        "                return\n"
        "            except _Garbled:",
        "                    self._backoff.next()\n            except _Garbled:",
        "After a watch has expired, nothing is seen of its resource any more.",
    ),
    PlantedFault(
        "bookmarks are taken for objects",
        "engine/io/watching/reflector.py",
        "version = self._bookmark_version(event.object)",
        "version = sink.put(event.object)",
        "Warnings about malformed objects every minute, and watches that expire.",
    ),
    PlantedFault(
        "list finds nothing that is gone",
        "engine/io/watching/informer.py",
        "        self._unlisted = set(self._store)\n",
        "        self._unlisted = set()\n",
        "What was deleted while the connection was down stays in the cache.",
    ),
    PlantedFault(
        "list deletes what it has",
        "engine/io/watching/informer.py",
        "        self._unlisted.discard(key)\n",
        "",
        "After a second list the cache is empty, and nodes are filled twice.",
    ),
    PlantedFault(
        "deleted object stays in the store",
        "engine/io/watching/informer.py",
        "        del self._store[key]\n",
        "",
        "Every object that there ever was takes memory, and is deleted again with each list.",
    ),
    PlantedFault(
        "watch begins at the list again",
        "engine/io/watching/reflector.py",
        "                self.resource_version = version or self.resource_version\n",
        "",
        "After each break old versions of objects come again, deleted ones too.",
    ),
    PlantedFault(
        "cut line loses its beginning",
        "engine/io/kube/client.py",
        '                        lines[0] = b"".join(parts) + lines[0]\n',
        "",
        "Events that do not fit into one packet break their watch.",
    ),
    PlantedFault(
        "error within a watch is skipped",
        "engine/io/kube/client.py",
        "                            _raise_if_error(line, label)\n",
        "                            pass\n",
        "A watch whose version is too old goes on as if it had said nothing.",
        why_missed="The API server ends such a watch, and answers the next one with 410.",
    ),
    PlantedFault(
        "end of a watch is not noticed",
        "engine/io/kube/connection.py",
        "            stream.end()\n            return\n",
        "            return\n",
        "After the API server has closed a watch, nothing is seen of its resource.",
    ),
    PlantedFault(
        "break of a watch is not noticed",
        "engine/io/kube/connection.py",
        "            self.stream.end(error)\n",
        "            pass\n",
        "After a connection was reset, nothing is seen of its resource.",
    ),
    PlantedFault(
        "lost connections count",
        "engine/io/kube/pool.py",
        "        self._open.pop(connection, None)\n",
        "",
        "After some resets no connection is opened any more.",
    ),
    PlantedFault(
        "closed connection is used again",
        "engine/io/kube/pool.py",
        "            connection = self._free.pop()\n            if connection.is_usable:\n",
        "            connection = self._free.pop()\n            if connection is not None:\n",
        "Requests fail after the API server has closed a connection that was idle.",
    ),
    PlantedFault(
        "failed dials count",
        "engine/io/kube/pool.py",
        "        self._opening.discard(task)\n",
        "",
        "After some refused connections none is opened any more.",
    ),
    PlantedFault(
        "timed changes are not handled",
        "engine/io/event_handlers.py",
        "        handle(*objects)\n        seconds",
        "        seconds",
        "One change of sixteen is lost.",
    ),
)
