"""Asking the API server of a live cluster what it would store of a pod that does not exist yet.

Owns the dry run: nothing is created. Who may not create pods there may not ask either; then what
admission looks up is read, and admission is done here. Claims are made here either way, so the
templates that pods name are read, too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from engine.core.manifests import kinds
from engine.core.manifests.schema import Problem
from engine.files.admission import KnownObjects, Refused
from engine.io.kube.errors import ApiError, Forbidden, NotFound
from engine.io.kube.resources import PODS, Resource
from engine.lib import event_loop
from engine.surfaces.cli.cluster_option import connect
from workbench.cli.cluster_reading import PRIORITY_CLASSES, list_newest

_OPTIONS: Final = {"dryRun": "All", "fieldValidation": "Strict"}
# What decides about a pod that is yet to be admitted, and nothing else reads.
_LOOKED_UP: Final = (
    PRIORITY_CLASSES,
    Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False),
    Resource("", "v1", "limitranges", "LimitRange", True),
)
_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True
)
# What authorization says; admission refuses with the same code.
_NOT_ALLOWED: Final = "cannot create resource"
# Whether it is there already makes no difference to what would be stored.
_OF_THE_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generateName")


@contextmanager
def api_errors() -> Iterator[None]:
    """Convert errors of the cluster to those of commands."""
    try:
        yield
    except ApiError as error:
        raise click.ClickException(str(error)) from error


class DryRun:
    """What the API server of a cluster would store of pods.

    *known* gets the templates that pods name for their claims and, if the server may not be asked,
    what its admission looks up. What is known there already, from the user's files, stays.

    Attributes:
        was_asked: It has answered.
        refusal: Why it may not be asked; empty if it was not, or may.
    """

    def __init__(self, kubeconfig: Path | None, context: str | None, known: KnownObjects) -> None:
        self._where = (kubeconfig, context)
        self._known = known
        self._unread: dict[str, str] = {}
        self.was_asked = False
        self.refusal = ""

    def stored(self, pod: dict[str, Any]) -> dict[str, Any] | None:
        """*pod* as the API server would store it; None if it may not be asked.

        Raises `Refused` with what it objects to, and `ApiError` if it does not answer.
        """
        missing = [one for one in _templates_of(pod) if self._is_unknown(*one)]
        if missing:
            event_loop.run(self._read_templates(missing))
        if self.refusal:
            return None
        try:
            found: dict[str, Any] = event_loop.run(self._ask(pod))
        except Forbidden as error:
            if _NOT_ALLOWED not in error.message:
                raise Refused(pod, [Problem((), error.message)]) from error
            self.refusal = error.message
            event_loop.run(self._look_up())
            return None
        except ApiError as error:
            if not 400 <= error.status < 500:
                raise
            raise Refused(pod, [Problem((), error.message)]) from error
        self.was_asked = True
        return found

    def _is_unknown(self, namespace: str, name: str) -> bool:
        return self._known.find(kinds.RESOURCE_CLAIM_TEMPLATES, name, namespace) is None

    async def _read_templates(self, wanted: list[tuple[str, str]]) -> None:
        async with await connect(*self._where) as client:
            for namespace, name in wanted:
                try:
                    raw = await client.get(_TEMPLATES, name, namespace)
                except NotFound:
                    pass  # as in the cluster: nothing makes the claim
                except Forbidden as error:
                    self._unread[str(_TEMPLATES)] = error.message
                else:
                    self._known.add(msgspec.json.decode(raw))

    async def _ask(self, pod: dict[str, Any]) -> dict[str, Any]:
        given = pod.get("metadata") or {}
        # Its name may be taken by the pod that it will replace.
        metadata = {key: value for key, value in given.items() if key not in _OF_THE_SERVER}
        prefix = given.get("generateName") or f"{metadata.pop('name', 'pod')}-"
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "generateName": prefix},
            "spec": pod.get("spec"),
        }
        namespace = metadata.get("namespace") or "default"
        async with await connect(*self._where) as client:
            raw = await client.create(PODS, msgspec.json.encode(body), namespace, params=_OPTIONS)
        stored: dict[str, Any] = msgspec.json.decode(raw)
        kept = {k: v for k, v in stored["metadata"].items() if k not in _OF_THE_SERVER}
        named = {key: given[key] for key in ("name", "generateName") if key in given}
        if "name" not in named:
            kept.pop("name", None)
        return {"kind": "Pod", **stored, "metadata": {**kept, **named}}

    async def _look_up(self) -> None:
        async with await connect(*self._where) as client:
            for resource in _LOOKED_UP:
                try:
                    found, _ = await list_newest(client, resource, lambda _: None)
                except Forbidden as error:
                    self._unread[str(resource)] = error.message
                except NotFound:
                    pass  # what is not served is not looked up either
                else:
                    self._known.add_missing(found)

    @property
    def note(self) -> str:
        """How the pods of manifests were read, in one sentence."""
        unread = "".join(f"; not read: {name}: {why}" for name, why in self._unread.items())
        if self.was_asked:
            said = "manifests are read as the API server stores them: it was asked by a dry run"
            return f"{said}{unread}"
        if self.refusal:
            return f"the API server may not be asked by a dry run: {self.refusal}{unread}"
        return ""


def _templates_of(pod: dict[str, Any]) -> list[tuple[str, str]]:
    """The namespace and name of each template that *pod* names for a claim."""
    namespace = (pod.get("metadata") or {}).get("namespace") or "default"
    wanted = (pod.get("spec") or {}).get("resourceClaims") or ()
    names = (one.get("resourceClaimTemplateName") for one in wanted)
    return [(namespace, name) for name in names if name]
