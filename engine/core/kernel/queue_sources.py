"""Where the queues of a tree come from: its document, objects of the API, labels of namespaces.

Owns what each source adds, as of now. An object that the policy cannot read keeps what it added
last; what is wrong with the tree as a whole is `sharing.tree`'s to say.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from engine.core.caching.cache import Cache
from engine.core.kernel.events import QueueAdjusted, QueueObjectChanged
from engine.core.scheduling.tree_hooks import TreeHooks
from engine.core.sharing.tree import Alias, GivenQueue, QueueTree, build_tree
from engine.policy.evaluator import PolicyFailure

NAMESPACES: Final = "namespaces"


class QueueSources:
    """All sources of a tree.

    Attributes:
        is_stale: One of them has changed since `build`.
        problems: What is wrong with them, by what it is about.
    """

    def __init__(self, cache: Cache) -> None:
        self.is_stale = False
        self.problems: dict[str, str] = {}
        self._cache = cache
        # What each object is, and what it adds to the tree, by kind and key.
        self._objects: dict[tuple[str, str], Any] = {}
        self._added: dict[tuple[str, str], list[list[Any]]] = {}
        self._to_ask: dict[tuple[str, str], None] = {}
        self._adjusted: dict[str, Mapping[str, Any]] = {}  # attributes by path

    def objects(self) -> Iterator[QueueObjectChanged]:
        """The objects that add queues, as events that would show them to another tree."""
        for (kind, key), found in self._objects.items():
            yield QueueObjectChanged(kind, key, found)

    def take(self, event: QueueObjectChanged) -> None:
        """An object that adds queues appeared, changed, or is gone."""
        at = (event.kind, event.key)
        if event.object is None:
            self._objects.pop(at, None)
            self._added.pop(at, None)
            self._note(f"{event.kind} {event.key}", "")
        else:
            self._objects[at] = event.object
            self._to_ask[at] = None
        self.is_stale = True

    def adjust(self, event: QueueAdjusted) -> None:
        """A queue has other attributes than its source gives."""
        self._adjusted[event.path] = event.attributes
        self.is_stale = True

    def begin(self) -> None:
        """Another policy is asked from now on."""
        self.problems.clear()
        self._added.clear()
        self._to_ask = dict.fromkeys(self._objects)
        self.is_stale = True

    def build(self, hooks: TreeHooks) -> QueueTree:
        """The tree of all sources as they are."""
        self.is_stale = False
        self._ask_objects(hooks)
        given = [*hooks.tree.given, *self._of_objects(hooks), *self._of_namespaces(hooks)]
        aliases = [
            Alias(one[1], one[2], f"{kind} {key}")
            for (kind, key), found in sorted(self._added.items())
            for one in found
            if one[0] == "alias"
        ]
        tree = build_tree(given, aliases)
        for path, attributes in self._adjusted.items():
            if path in tree.queues:
                queue = tree.queues[path]
                queue.attributes = {**queue.attributes, **attributes}
        return tree

    def queue_of_namespace(self, hooks: TreeHooks, name: str) -> str:
        """The path of the queue that the label of the namespace *name* names; "": none."""
        source = hooks.tree.namespaces
        namespace = self._cache.objects.get(NAMESPACES, name)
        if source is None or namespace is None:
            return ""
        return _path(namespace.metadata.labels.get(source.label, ""))

    def _ask_objects(self, hooks: TreeHooks) -> None:
        """Ask what the objects that have changed add to the tree; one that fails keeps its last."""
        asked = [at for at in self._to_ask if at in self._objects]
        self._to_ask.clear()
        if not hooks.has("queues"):
            return
        for at, answer in zip(
            asked, hooks.queues([self._objects[at] for at in asked]), strict=True
        ):
            name = " ".join(at)
            if isinstance(answer, PolicyFailure):
                self._note(name, f"{name}: {answer}")
                if answer.is_transient:
                    self._to_ask[at] = None
                    self.is_stale = True
            else:
                self._note(name, "")
                self._added[at] = answer

    def _of_objects(self, hooks: TreeHooks) -> Iterable[GivenQueue]:
        for (kind, key), found in sorted(self._added.items()):
            for one in found:
                if one[0] == "queue":
                    _, name, parent, values, is_implied = one
                    source = f"{kind} {key}"
                    attributes = self._attributes(hooks, values, source, is_written=False)
                    yield GivenQueue(name, parent, attributes, source, is_implied=is_implied)

    def _of_namespaces(self, hooks: TreeHooks) -> Iterable[GivenQueue]:
        source = hooks.tree.namespaces
        if source is None:
            return
        there = {one.name for one in hooks.tree.given}
        namespaces = self._cache.objects.list(NAMESPACES)
        for namespace in sorted(namespaces, key=lambda one: str(one.metadata.name)):
            path = _path(namespace.metadata.labels.get(source.label, ""))
            if not path or path in there:
                continue  # several namespaces may share a queue: the first has its attributes
            there.add(path)
            place = f"namespace {namespace.metadata.name}"
            values = {
                name.removeprefix(source.annotations): _value(text)
                for name, text in namespace.metadata.annotations.items()
                if source.annotations and name.startswith(source.annotations)
            }
            yield GivenQueue(path, "", self._attributes(hooks, values, place), place, is_path=True)

    def _attributes(
        self, hooks: TreeHooks, values: Mapping[str, Any], source: str, *, is_written: bool = True
    ) -> Mapping[str, Any]:
        found, wrong = hooks.tree.with_defaults(values, is_written=is_written)
        self._note(f"attributes of {source}", f"{source}: {'; '.join(wrong)}" if wrong else "")
        return found

    def _note(self, name: str, problem: str) -> None:
        """Keep *problem*, or forget the one of this *name*."""
        if problem:
            self.problems[name] = problem
        else:
            self.problems.pop(name, None)


def _path(label: str) -> str:
    """The path that the value of a label means: it can have no slashes."""
    return label.replace(".", "/")


def _value(text: str) -> Any:
    """What the text of an annotation is: JSON, or else the text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
