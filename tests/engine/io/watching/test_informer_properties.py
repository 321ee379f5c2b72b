"""Whatever the server does and wherever the stream breaks, handlers end up with its truth."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.kube.resources import PODS
from engine.io.watching.informer import Decoding, Informer
from tests.engine.io.watching.recorder import Recorder, decode

NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("spoil"), NAMES),
        st.tuples(st.sampled_from(["deliver", "relist", "half a list"]), st.just("")),
    ),
    max_size=60,
)


class Server:
    """Objects, and the events that a watcher has not read yet."""

    def __init__(self) -> None:
        self.version = 0
        self.objects: dict[str, dict[str, Any]] = {}
        self.pending: list[tuple[str, dict[str, Any]]] = []

    def write(self, name: str, *, malformed: bool = False) -> None:
        self.version += 1
        old = self.objects.get(name)
        uid = old["metadata"]["uid"] if old else f"uid-{self.version}"
        metadata = {"name": name, "uid": uid, "resourceVersion": str(self.version)}
        self.objects[name] = {"metadata": metadata, "malformed": malformed}
        self.pending.append(("MODIFIED" if old else "ADDED", self.objects[name]))

    def delete(self, name: str) -> None:
        old = self.objects.pop(name, None)
        if old is not None:
            self.version += 1
            metadata = {**old["metadata"], "resourceVersion": str(self.version)}
            self.pending.append(("DELETED", {**old, "metadata": metadata}))


def raw(obj: dict[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(obj).encode())


@given(STEPS)
def test_handlers_mirror_the_server_and_get_each_change_once(
    steps: list[tuple[str, str]],
) -> None:
    """The recorder itself refuses a repeated add, an update from elsewhere, a foreign delete."""
    server, recorder = Server(), Recorder()
    client = ApiClient(Endpoint(server="http://127.0.0.1:1"))
    informer = Informer(client, PODS, Decoding(decode), recorder)

    def deliver() -> None:
        for kind, obj in server.pending:
            (informer.remove if kind == "DELETED" else informer.put)(raw(obj))
        server.pending.clear()

    def relist() -> None:
        informer.begin_list()
        for obj in server.objects.values():
            informer.put(raw(obj))
        list(informer.end_list())
        server.pending.clear()

    relist()
    for step, name in steps:
        match step:
            case "write":
                server.write(name)
            case "spoil":
                server.write(name, malformed=True)
            case "delete":
                server.delete(name)
            case "deliver":
                deliver()
            case "relist":
                relist()
            case "half a list":  # broke off: nothing follows but another list
                informer.begin_list()
                for obj in list(server.objects.values())[:1]:
                    informer.put(raw(obj))
                relist()
    deliver()

    assert informer.counts.handler_errors == 0
    reported = {obj["metadata"]["name"]: obj for obj in recorder.mirror.values()}
    assert reported == {obj["metadata"]["name"]: obj for obj in informer.values()}
    for name, obj in server.objects.items():
        if not obj["malformed"]:
            assert reported[name] == obj
    for name, obj in reported.items():  # nothing that is gone, nor another object of that name
        assert server.objects[name]["metadata"]["uid"] == obj["metadata"]["uid"]
