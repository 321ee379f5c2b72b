"""Every combination of the options of lists and watches, and what a server answers to it.

Owns the combinations and the form of an answer: a line that is the same on every run. What the
real server answers is `list_options.txt`; `test_list_options` asks both servers.
"""

import asyncio
import itertools
import json
import re
from pathlib import Path
from typing import Any, Final

from tests.contract.harness import Answer, Api

Json = dict[str, Any]

ANSWERS: Final = Path(__file__).with_suffix(".txt")
#: Resource versions by name: "past" has one object of three, "now" all.
_VERSIONS: Final = ("", "0", "past", "now", "future", "abc")
_MATCHES: Final = ("", "Exact", "NotOlderThan", "Foo")
_INITIAL: Final = ("", "true", "false")
_LISTS: Final = {
    "resourceVersion": _VERSIONS,
    "resourceVersionMatch": _MATCHES,
    "limit": ("", "2"),
    "continue": ("", "token"),
    "sendInitialEvents": _INITIAL,
}
_WATCHES: Final = {
    "watch": ("1",),
    "resourceVersion": _VERSIONS,
    "resourceVersionMatch": _MATCHES,
    "sendInitialEvents": _INITIAL,
    "allowWatchBookmarks": ("", "true"),
    "continue": ("", "token"),
}
#: How parameters may be written.
_FORMS: Final = [
    {"limit": ""},
    {"limit": "2.5"},
    {"limit": "-1"},
    {"limit": "+2"},
    {"limit": "9223372036854775808"},
    {"timeoutSeconds": "x"},
    {"watch": "0"},
    {"watch": "False"},
    {"watch": "f"},
    {"watch": ""},
    {"watch": "1", "sendInitialEvents": "0", "resourceVersionMatch": "NotOlderThan"},
    {"watch": "1", "sendInitialEvents": "", "resourceVersionMatch": "NotOlderThan"},
]
#: How many requests are under way at once.
_AT_ONCE: Final = 100


def combinations() -> list[Json]:
    """The parameters of each request, with names in place of what differs from run to run."""
    return [
        {key: one for key, one in zip(options, values, strict=True) if one}
        for options in (_LISTS, _WATCHES)
        for values in itertools.product(*options.values())
    ] + _FORMS


async def answers(api: Api) -> str:
    """What the server says to `combinations`: every answer, and below it what it answers."""
    path = api.path("configmaps")
    meant: dict[str, str] = {"future": str(2**40)}
    for name in ("a", "b", "c"):
        made = await api.make(path, {"metadata": {"name": name}})
        meant["now"] = made["metadata"]["resourceVersion"]
        meant.setdefault("past", meant["now"])
    # The watch cache of the real server comes to know them after a moment.
    await api.eventually(
        lambda: api.get(path, resourceVersion=0), lambda got: len(got.body["items"]) == 3
    )
    first = await api.get(path, limit=1)
    meant["token"] = first.body["metadata"]["continue"]
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask(options: Json) -> str:
        sent = {key: meant.get(value, value) for key, value in options.items()}
        async with limit:
            if "watch" in sent:
                sent.setdefault("timeoutSeconds", "4")
            return _shown(await api.get(path, **sent), meant)

    asked = combinations()
    found: dict[str, list[str]] = {}
    for options, said in zip(
        asked, await asyncio.gather(*(ask(options) for options in asked)), strict=True
    ):
        shown = "&".join(f"{key}={value}" for key, value in options.items())
        found.setdefault(said, []).append(shown or "(none)")
    return "\n".join("\n    ".join([said, *found[said]]) + "\n" for said in sorted(found))


def _shown(answer: Answer, meant: dict[str, str]) -> str:
    if answer.status != 200:
        text = re.sub(r"[0-9]+(?=,|$)", lambda got: _version(got[0], meant), answer.message)
        return f"{answer.status} {answer.reason}: {text}"
    if isinstance(answer.body, str) or "items" not in answer.body:
        return f"200 {_events(answer.body, meant)}"
    metadata = answer.body["metadata"]
    version = _version(metadata["resourceVersion"], meant)
    listed = "".join(item["metadata"]["name"] for item in answer.body["items"])
    rest = f" {metadata['remainingItemCount']} left" if "continue" in metadata else ""
    return f"200 {listed} at {version}{rest}"


def _events(body: Any, meant: dict[str, str]) -> str:
    lines = body.splitlines() if isinstance(body, str) else [json.dumps(body)]
    shown = []
    for line in lines:
        event = json.loads(line)
        thing = event["object"]
        match event["type"]:
            case "ERROR":
                shown.append(f"ERROR {thing['code']} {thing.get('reason', '')}")
            case "BOOKMARK":
                # When others come is the server's choice.
                shown += ["END"] if "annotations" in thing["metadata"] else []
            case kind:
                shown.append(f"{kind} {thing['metadata']['name']}")
    return ", ".join(shown) or "nothing"


def _version(text: str, meant: dict[str, str]) -> str:
    """The name of a version, "now" for any that is at least as new and has happened."""
    if text == meant["future"]:
        return "future"
    return "now" if int(text) >= int(meant["now"]) else {meant["past"]: "past"}.get(text, text)
