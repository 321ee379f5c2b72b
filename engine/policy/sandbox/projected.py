"""Nodes by number, so that what hooks are given of a node is sent to a child once.

Owns the projections that both sides of the border know by the same numbers. What a node is on its
way to a hook:

    NodeInfo              the cache: the node and the pods on it
       | NodeColumns.refresh: for each set of fields that some hook reads
    bytes                 a projection: the JSON of those fields; equal ones are kept once
       | NodeColumn       `values[id]` is a projection, `ids[slot]` the one that a node has now
    id                    what verdict tables are indexed by: `Table.codes[id]`
       | VerdictMemo.fill: ids without a verdict
    Projected             `values` and some `ids`; reads like a list of bytes
       | Outbox: values that the child does not have, and ids as 32-bit ints
    ======================= the socket =======================
       | Inbox: appends the values to its copy of the column
    Projected             the same on the other side
       | PolicyWorker: translated hooks           | the others, and what they decline
    object                a struct of the fields  | Starlark text    all entries as one JSON list,
                          that the hook reads,    |                  decoded by the driver; frozen
                          decoded once (Entries)  |                  views are kept (NodeViews)
       | hook(node)                               | hook(node)

In the same process (tests, simulations) `Projected` goes to the worker as it is. A column grows at
its end only, so what a child has of it is one length. The child keeps what it was sent until a
request says to forget all; the trusted side keeps the bound.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from engine.policy.sandbox.protocol import Call


class Projected(Sequence[bytes]):
    """Some of the projections of a column: reads like the list of them.

    `values[id]` for each of `ids`, 32-bit ints as they are sent; `column` is a number that no other
    list of values ever has.
    """

    __slots__ = ("column", "ids", "values")

    def __init__(self, column: int, values: Sequence[bytes], ids: "array[int]") -> None:
        self.column = column
        self.values = values
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[bytes]:
        return map(self.values.__getitem__, self.ids.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self.values[i] for i in self.ids[index].tolist()]
        return self.values[self.ids[index]]

    def __eq__(self, other: object) -> bool:
        return list(self) == (list(other) if isinstance(other, Projected) else other)

    __hash__ = None  # type: ignore[assignment]  # as of a list


class News(msgspec.Struct, frozen=True, array_like=True):
    """The values that are appended to a column."""

    column: int
    values: list[bytes]


class Request(msgspec.Struct, frozen=True, array_like=True):
    """Calls to answer in order.

    The answers come as frames of lists of `RawAnswer`, one for each call; with `one_by_one` one for
    each entry, each in a frame of its own: slower, but it shows which call ends the process. `news`
    are to be learned first, once all that was known is forgotten if it `forgets`. If it `is_timed`,
    each answer says how long it took.
    """

    calls: list[Call]
    one_by_one: bool = False
    news: list[News] = []
    forgets: bool = False
    is_timed: bool = False


class Outbox:
    """What one child was sent, of at most *most_bytes* (or one column, if that is larger)."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lengths: dict[int, int] = {}

    def request(self, calls: Sequence[Call], *, is_timed: bool = False) -> Request:
        """What is sent to have *calls* answered, and timed if *is_timed*."""
        forgets = self._bytes > self._most_bytes
        if forgets:
            self._lengths.clear()
            self._bytes = 0
        news: list[News] = []
        packed = [self._packed(call, news) for call in calls]
        return Request(packed, news=news, forgets=forgets, is_timed=is_timed)

    def _packed(self, call: Call, news: list[News]) -> Call:
        nodes = call.nodes
        if type(nodes) is not Projected:
            return call
        have, values = self._lengths.get(nodes.column, 0), nodes.values
        if have < len(values):
            more = list(values[have:])
            size = sum(map(len, more))
            if size > self._most_bytes:
                return call._replace(nodes=list(nodes))
            self._bytes += size
            self._lengths[nodes.column] = len(values)
            news.append(News(nodes.column, more))
        ids = nodes.ids.tobytes()
        return Call(call.instance, call.hook, call.pod, None, call.extra, nodes.column, ids)


class Inbox:
    """What a child was sent."""

    def __init__(self) -> None:
        self._columns: dict[int, list[bytes]] = {}

    def calls(self, request: Request) -> list[Call]:
        """The calls of *request*, as they were before they were sent."""
        if request.forgets:
            self._columns.clear()
        for each in request.news:
            self._columns.setdefault(each.column, []).extend(each.values)
        return [self._unpacked(call) for call in request.calls]

    def _unpacked(self, call: Call) -> Call:
        if call.column < 0:
            return call
        ids = array("i", call.ids)
        nodes = Projected(call.column, self._columns[call.column], ids)
        return Call(call.instance, call.hook, call.pod, nodes, call.extra)


def plain(call: Call) -> Call:
    """*call* with its nodes in a plain list, which any encoder accepts."""
    return call._replace(nodes=list(call.nodes)) if type(call.nodes) is Projected else call
