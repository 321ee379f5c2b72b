"""Whose pods the built-in policies decide for when a start finds no usable policies.

Owns that choice. Next to kube-scheduler, its default profile would be wrong: two schedulers would
place the same pods.
"""

from collections.abc import Mapping
from typing import Final

import yaml

from engine.policy.config import API_VERSION, DEFAULT_SCHEDULER_NAME, KIND, decode_documents
from engine.policy.file_names import is_document

_FILE: Final = "profile.yaml"


def last_resort(offered: Mapping[str, str] | None, otherwise: str) -> dict[str, str]:
    """Files with which the built-in policies decide for the right pods.

    Those of the profiles that *offered* configures, if that can be read; else of *otherwise*. No
    files mean kube-scheduler's default profile.
    """
    names = _names(offered or {}) or (otherwise,)
    if names == (DEFAULT_SCHEDULER_NAME,):
        return {}
    profiles = [{"schedulerName": name} for name in names]
    document = {"apiVersion": API_VERSION, "kind": KIND, "profiles": profiles}
    return {_FILE: yaml.safe_dump(document, sort_keys=False)}


def _names(files: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the profiles in *files*; none where something about them cannot be read."""
    documents = decode_documents({f: text for f, text in files.items() if is_document(f)})
    if documents.configuration is None:
        return ()
    names = (profile.scheduler_name for profile in documents.configuration.profiles)
    return tuple(dict.fromkeys(name for name in names if name))
