"""A proxy between an editor and a Python language server, which makes it understand policies.

Owns the messages that it changes: texts get parameter types on their way to the server, the editor
is asked for whole texts instead of edits, a workspace folder is added if the editor sends none, and
the server's diagnostics about Python are dropped, as are completions and edits that Starlark does
not have. `check`'s findings take the place of the diagnostics, and the policy's own arguments are
completed here (`editor_documents`). All other messages are passed unchanged.
"""

import builtins
import contextlib
import re
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Final

import msgspec
import starlark

from engine.language.prelude import known_names, members
from engine.policy.sandbox.modules import DIALECT, GLOBALS
from workbench.cli.editor_documents import Documents
from workbench.stubs.typed_text import typed

_FULL_TEXT: Final = 1
_TEST: Final = "_test.star"
_STOP_SECONDS: Final = 5.0
# Fixes write `# pyright: ignore`, typing `{` makes an f-string of a string, and the commands have
# the names of those that the server's own extension brings: an editor with both starts one of them.
_FOR_PYTHON: Final = (
    "diagnosticProvider",
    "codeActionProvider",
    "documentOnTypeFormattingProvider",
    "executeCommandProvider",
)
_KEYWORD: Final = 14  # a kind of completion
_NAMES: Final = (3, 7)  # the kinds of functions and classes; methods are of another one
_OF_PYTHON: Final = frozenset(vars(builtins)) - known_names()
_METHOD: Final = 2  # a kind of completion
_KEYWORDS: Final = re.compile(
    "and|break|continue|def|elif|else|for|if|in|lambda|not|or|pass|return|True|False|None"
)

Message = dict[str, Any]


def _methods_of_python() -> frozenset[str]:
    """Methods that values of Python have, and neither values nor libraries of Starlark."""
    text = starlark.parse("methods", 'dir("") + dir([]) + dir({})', DIALECT)
    known: Any = starlark.eval(starlark.Module(), text, GLOBALS)
    python = {name for kind in (str, list, dict, tuple, int, float) for name in dir(kind)}
    return frozenset(python.difference(known, members("json"), members("math")))


_METHODS_OF_PYTHON: Final = _methods_of_python()


def serve(command: Sequence[str], reader: BinaryIO, writer: BinaryIO) -> int:
    """Run the language server *command* until it ends, or the editor does; its exit code.

    Raises `OSError` if it does not start.
    """
    lock = threading.Lock()

    def to_writer(message: Message) -> None:
        # (An editor that is gone needs no answer.)
        with lock, contextlib.suppress(OSError, ValueError):
            write_message(writer, message)

    documents = Documents(to_writer)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def asked(message: Message) -> Message | None:
            answer = own_answer(message, documents)
            if answer is None:
                return to_server(message)
            to_writer(answer)
            return None

        # A daemon: it may still be blocked on the editor's input when the server has exited.
        questions = threading.Thread(target=_ask, args=(server, reader, asked), daemon=True)
        questions.start()
        _pass(server.stdout, to_writer, to_editor)
    return server.returncode


def _ask(
    server: subprocess.Popen[bytes], reader: BinaryIO, change: Callable[[Message], Message | None]
) -> None:
    """Forward the messages of the editor; stop the server when the editor exits."""
    assert server.stdin is not None
    _pass(reader, partial(write_message, server.stdin), change)
    with contextlib.suppress(OSError):
        server.stdin.close()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()


def own_answer(message: Message, documents: Documents) -> Message | None:
    """Note what a message of the editor says of *documents*; its answer, if it is given here."""
    params = message.get("params")
    document = params.get("textDocument") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(document, dict):
        return None
    uri = str(document.get("uri", ""))
    match message.get("method"):
        case "textDocument/didOpen":
            documents.put(uri, str(document.get("text", "")))
        case "textDocument/didChange":
            for change in params.get("contentChanges") or ():
                if "range" not in change:
                    documents.put(uri, str(change.get("text", "")))
        case "textDocument/didClose":
            documents.close(uri)
        case "textDocument/completion":
            place = params.get("position") or {}
            items = documents.arguments_at(uri, place.get("line", 0), place.get("character", 0))
            if items is not None:
                return {"jsonrpc": "2.0", "id": message.get("id"), "result": items}
    return None


def to_server(message: Message) -> Message | None:
    """A message of the editor as the server gets it."""
    params = message.get("params")
    if not isinstance(params, dict):
        return message
    if message.get("method") == "initialize":
        _name_a_folder(params)
        _ask_for_no_diagnostics(params.get("capabilities"))
    document = params.get("textDocument")
    if not isinstance(document, dict):
        return message
    name = str(document.get("uri", ""))
    if not name.endswith(".star") or name.endswith(_TEST):  # in tests, pods are manifests
        return message
    if message.get("method") == "textDocument/didOpen":
        document["text"] = typed(str(document.get("text", "")))
    elif message.get("method") == "textDocument/didChange":
        for change in params.get("contentChanges") or ():
            if "range" not in change:
                change["text"] = typed(str(change.get("text", "")))
    return message


def _name_a_folder(params: Message) -> None:
    """Add the current folder as workspace folder if there is none: stubs are found through it."""
    if params.get("workspaceFolders") or params.get("rootUri"):
        return
    folder = Path(str(params.get("rootPath") or "")).resolve()
    params["rootUri"] = folder.as_uri()
    params["workspaceFolders"] = [{"uri": folder.as_uri(), "name": folder.name}]


def _ask_for_no_diagnostics(capabilities: Any) -> None:
    """Remove the capability to pull diagnostics: the server would offer them later."""
    for kind, name in (("textDocument", "diagnostic"), ("workspace", "diagnostics")):
        known = capabilities.get(kind) if isinstance(capabilities, dict) else None
        if isinstance(known, dict):
            known.pop(name, None)


def to_editor(message: Message) -> Message | None:
    """A message of the server as the editor gets it; None: it does not."""
    if message.get("method") == "textDocument/publishDiagnostics":
        return None
    result = message.get("result")
    capabilities = result.get("capabilities") if isinstance(result, dict) else None
    if isinstance(capabilities, dict):
        sync = capabilities.get("textDocumentSync")
        own = sync if isinstance(sync, dict) else {"openClose": True}
        capabilities["textDocumentSync"] = {**own, "change": _FULL_TEXT}
        for name in _FOR_PYTHON:
            capabilities.pop(name, None)
    elif isinstance(result, dict) and isinstance(result.get("items"), list):
        result["items"] = _of_starlark(result["items"])
    elif isinstance(result, list):
        message["result"] = _of_starlark(result)
    return message


def _of_starlark(items: list[Any]) -> list[Any]:
    """Completions that Starlark has, and hints that stay hints; anything else is as it was."""
    kept = []
    for item in items:
        if isinstance(item, dict) and "label" in item:
            if "position" in item:  # a hint; accepted, it writes a type
                item.pop("textEdits", None)
            elif _is_for_python(item):
                continue
        kept.append(item)
    return kept


def _is_for_python(item: Message) -> bool:
    """Whether a completion adds an `import`, or is a name that only Python has."""
    label = str(item["label"])
    if item.get("kind") == _KEYWORD:
        return _KEYWORDS.fullmatch(label) is None
    if item.get("kind") in _NAMES and label in _OF_PYTHON:
        return True
    if item.get("kind") == _METHOD and label in _METHODS_OF_PYTHON:
        return True
    return bool(item.get("additionalTextEdits")) or (label[:2] == label[-2:] == "__")


def _pass(
    reader: IO[bytes],
    write: Callable[[Message], None],
    change: Callable[[Message], Message | None],
) -> None:
    """Pass messages on until one side is gone."""
    with contextlib.suppress(OSError, ValueError):
        while (message := read_message(reader)) is not None:
            changed = change(message)
            if changed is not None:
                write(changed)


def read_message(reader: IO[bytes]) -> Message | None:
    """The next message of the protocol; None at the end."""
    length = 0
    while header := reader.readline().strip():
        name, _, value = header.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        return None
    message: Message = msgspec.json.decode(reader.read(length))
    return message


def write_message(writer: IO[bytes], message: Message) -> None:
    """Write *message* with its header, at once."""
    body = msgspec.json.encode(message)
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    writer.flush()
