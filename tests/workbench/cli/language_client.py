"""An editor for tests: speaks to a language server over its stdin and stdout."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from workbench.cli.editor_bridge import read_message, write_message

#: As an editor that asks for diagnostics says it, and learns later what it may ask for.
_ASKS: Final = {"dynamicRegistration": True}
_CAPABILITIES: Final = {
    "textDocument": {"diagnostic": _ASKS, "completion": _ASKS},
    "workspace": {"workspaceFolders": True, "diagnostics": {"refreshSupport": True}},
}


class LanguageClient:
    """One server with one folder open. Use it in a `with` statement.

    With `names_folder=False` it is started in the folder and does not say so, as editors do where
    they find no mark of a project.
    """

    def __init__(self, command: Sequence[str], root: Path, *, names_folder: bool = True) -> None:
        self.root = root
        self._names_folder = names_folder
        self.diagnosed: list[Any] = []
        self.registered: set[str] = set()
        self._number = 0
        self._server = subprocess.Popen(
            command,
            cwd=None if names_folder else root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.capabilities: dict[str, Any] = {}

    def __enter__(self) -> "LanguageClient":
        try:
            self._initialize()
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.ask("shutdown", None)
                self.notify("exit", None)
                assert self._server.wait(20) == 0
        finally:
            self._server.kill()
            for pipe in (self._server.stdin, self._server.stdout):
                if pipe is not None:
                    pipe.close()
            self._server.wait()

    def _initialize(self) -> None:
        folder = {"uri": self.root.as_uri(), "name": self.root.name}
        answer = self.ask(
            "initialize",
            {
                "processId": os.getpid(),
                "rootUri": self.root.as_uri() if self._names_folder else None,
                "workspaceFolders": [folder] if self._names_folder else [],
                "capabilities": _CAPABILITIES,
            },
        )
        self.capabilities = answer["capabilities"]
        self.notify("initialized", {})

    def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        assert self._server.stdin is not None
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        write_message(self._server.stdin, message)

    def ask(self, method: str, params: Any) -> Any:
        """The answer to a request; requests of the server are answered with nothing meanwhile."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        write_message(self._server.stdin, request)
        while (message := read_message(self._server.stdout)) is not None:
            if message.get("method") == "textDocument/publishDiagnostics":
                self.diagnosed += message["params"]["diagnostics"]
            elif "method" in message and "id" in message:
                nothing: Any = None
                if message["method"] == "client/registerCapability":
                    self.registered |= {r["method"] for r in message["params"]["registrations"]}
                if message["method"] == "workspace/configuration":
                    nothing = [None] * len(message["params"]["items"])
                answer = {"jsonrpc": "2.0", "id": message["id"], "result": nothing}
                write_message(self._server.stdin, answer)
            elif message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
        raise AssertionError("the server is gone")

    def open(self, name: str, text: str) -> str:
        """Open a file with *text*; its URI."""
        uri = (self.root / name).as_uri()
        document = {"uri": uri, "languageId": "starlark", "version": 1, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})
        return uri

    def change(self, uri: str, version: int, text: str) -> None:
        """Write the whole text anew."""
        document = {"uri": uri, "version": version}
        self.notify(
            "textDocument/didChange",
            {"textDocument": document, "contentChanges": [{"text": text}]},
        )

    def completions(self, uri: str, line: int, character: int) -> dict[str, Any]:
        """What the server offers at a place, by label."""
        where = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
        answer = self.ask("textDocument/completion", where)
        items = answer["items"] if isinstance(answer, dict) else answer or []
        return {item["label"]: item for item in items}

    def hover(self, uri: str, line: int, character: int) -> str:
        """What the server says of a place."""
        where = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
        answer = self.ask("textDocument/hover", where)
        return "" if answer is None else str(answer["contents"]["value"])
