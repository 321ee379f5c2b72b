"""The two forms of an event: core/v1, in which events are stored, and events.k8s.io/v1."""

from typing import Any

Json = dict[str, Any]

_RENAMED = {  # events.k8s.io/v1 -> core/v1, in which events are stored
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_RENAMED_BACK = {core: new for new, core in _RENAMED.items()}
_CORE_DEFAULTS: Json = {
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}


def core_event(event: Json) -> Json:
    """An event sent in either form, as stored."""
    renamed = {_RENAMED.get(key, key): value for key, value in event.items()}
    return {**_CORE_DEFAULTS, **renamed}


def new_event(event: Json) -> Json:
    """A stored event in its events.k8s.io form."""
    renamed = {_RENAMED_BACK.get(key, key): value for key, value in event.items()}
    return {
        key: value
        for key, value in renamed.items()
        if value != "" or key not in ("reportingController", "reportingInstance")
    }
