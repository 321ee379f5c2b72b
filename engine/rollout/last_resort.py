"""What is in force while none of the operator's policies can be used.

Owns the choice between two: every pod waits, or, with the operator's consent, the built-in policies
decide; and whose pods that is about. Next to kube-scheduler, its default profile would be wrong:
two schedulers would place the same pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec
import yaml

from engine.policy.bundle import Bundle, build_bundle
from engine.policy.config import API_VERSION, DEFAULT_SCHEDULER_NAME, KIND, decode_documents
from engine.policy.evaluator import Files
from engine.policy.file_names import is_document

WhenNone: TypeAlias = Literal["wait", "builtin"]
WAIT: Final[WhenNone] = "wait"
BUILTIN: Final[WhenNone] = "builtin"

#: The origin of a revision under which every pod waits.
WAITING: Final = "waiting"
#: Where what is in force can come from.
ORIGINS: Final = ("source", "last-good", "rolled-back", "builtin", WAITING)

_FILE: Final = "profile.yaml"
_POLICY: Final = "wait_for_policies"
_TOKEN: Final = "NoPolicies"
_TEXT: Final = '''"""Keeps every pod waiting: no policies can be used, and no others are to decide.

Hooks: pre_enqueue, filter (of an extender). Reads: nothing.
"""

_REASON = {reason}

def pre_enqueue(pod):
    return unresolvable(_REASON, token = "{token}")

def filter(pod, node):
    return unresolvable(_REASON, token = "{token}")
'''


@dataclass(frozen=True, slots=True)
class LastResort:
    """What is in force while none of the operator's policies can be used.

    Attributes:
        names: The `schedulerName`s that it is about, if the offered policies do not name others.
        is_fixed: The profiles are those of a configuration next to the policies.
        when_none: Whether pods wait or the built-in policies decide.
    """

    names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,)
    is_fixed: bool = False
    when_none: WhenNone = WAIT

    def builtin(self, offered: Mapping[str, str] | None) -> Files:
        """Files with which the built-in policies decide for the right pods."""
        return {} if self.is_fixed else last_resort(offered, self.names[0])

    def waiting(self, offered: Mapping[str, str] | None, reason: str) -> tuple[Bundle, Files]:
        """A revision under which the right pods wait, for *reason*, and its files."""
        named = () if self.is_fixed else _names(offered or {})
        files = _waiting_files(named or self.names, reason)
        return build_bundle(files), files


def last_resort(offered: Mapping[str, str] | None, otherwise: str) -> dict[str, str]:
    """Files with which the built-in policies decide for the right pods.

    Those of the profiles that *offered* configures, if that can be read; else of *otherwise*. No
    files mean kube-scheduler's default profile.
    """
    names = _names(offered or {}) or (otherwise,)
    if names == (DEFAULT_SCHEDULER_NAME,):
        return {}
    return {_FILE: _configuration([{"schedulerName": name} for name in names])}


def _waiting_files(names: Sequence[str], reason: str) -> dict[str, str]:
    plugins = {"multiPoint": {"enabled": [{"name": _POLICY}]}}
    profiles: list[dict[str, object]] = [
        {"schedulerName": name, "plugins": plugins} for name in names
    ]
    # A JSON string is a Starlark one, too.
    text = _TEXT.format(reason=msgspec.json.encode(reason).decode(), token=_TOKEN)
    return {_FILE: _configuration(profiles), f"{_POLICY}.star": text}


def _configuration(profiles: list[dict[str, object]]) -> str:
    document = {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}
    return yaml.safe_dump(document, sort_keys=False)


def _names(files: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the profiles in *files*; none where something about them cannot be read."""
    documents = decode_documents({f: text for f, text in files.items() if is_document(f)})
    if documents.configuration is None:
        return ()
    names = (profile.scheduler_name for profile in documents.configuration.profiles)
    return tuple(dict.fromkeys(name for name in names if name))
