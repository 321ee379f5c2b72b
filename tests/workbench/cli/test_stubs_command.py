"""`starsched stubs`: what an editor is told of views and built-ins, through a real server."""

import ast
import io
import json
import os
import queue
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from engine.core.model.clock_facts import CLOCK_FACTS
from engine.language import prelude
from engine.language.hooks import HOOKS
from engine.language.starlark import LIBRARIES
from engine.language.summaries import COUNT
from engine.policy.shipped import shipped_files
from engine.policy.view_fields import RECORDS
from engine.policy.views import VIEWS
from tests.scripts import script
from tests.workbench.cli.language_client import LanguageClient
from workbench.cli.editor_bridge import own_answer, read_message, serve, to_editor, write_message
from workbench.cli.editor_documents import Documents
from workbench.cli.main import main
from workbench.cli.stubs_command import FILE
from workbench.stubs.stubs import PARAMETERS, stub_text, type_of
from workbench.stubs.typed_text import typed

ROOT = Path(__file__).resolve().parents[3]
POLICY = '''"""A policy that is being written."""

load("@std/taints.star", "tolerates")

def filter(pod, node, counts):
    for taint in node.taints:
        if taint.
    return None

def score(pod, node):
    return _room(node) - node.

def _room(node):
    return node.allocatable.get("cpu", 0)

def normalize(score, over):
    return over.
'''


def fields_of(stub: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Class to field: its type and its documentation."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for one in ast.parse(stub).body:
        if isinstance(one, ast.ClassDef):
            fields = found[one.name] = {}
            for member, after in zip(one.body, [*one.body[1:], None], strict=True):
                if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
                    value = after.value if isinstance(after, ast.Expr) else None
                    doc = str(value.value).strip() if isinstance(value, ast.Constant) else ""
                    fields[member.target.id] = ast.unparse(member.annotation), doc
    return found


def functions_of(stub: str) -> dict[str, ast.FunctionDef]:
    return {one.name: one for one in ast.parse(stub).body if isinstance(one, ast.FunctionDef)}


# --- what is in the stub ---------------------------------------------------------------------


def test_every_field_is_there_with_its_type_and_documentation() -> None:
    found = fields_of(stub_text())
    for view, fields in VIEWS.items():
        want = {
            name: ("ClusterFacts" if field.if_named else type_of(field.type), field.doc)
            for name, field in fields.items()
        }
        assert found[view.capitalize()] == want
    for record, described in RECORDS.items():
        assert found[record] == {n: (type_of(t), doc) for n, (t, doc) in described.items()}
    assert list(found["Count"]) == list(COUNT)


def test_every_built_in_is_there_with_documentation() -> None:
    stub = stub_text()
    functions, classes = functions_of(stub), {
        one.name: one for one in ast.parse(stub).body if isinstance(one, ast.ClassDef)
    }  # fmt: skip
    for name in (*prelude.names(), *LIBRARIES, "plugin_args", "fail", "load"):
        assert ast.get_docstring(functions.get(name) or classes[name]), name
    asserts = {one.name for one in classes["asserts"].body if isinstance(one, ast.FunctionDef)}
    assert {"fits", "rejects", "scores", "for_any"} <= asserts


def test_every_shipped_function_is_there_with_its_parameters() -> None:
    functions = functions_of(stub_text())
    for path, text in shipped_files().items():
        if path.startswith("@std/") and not path.endswith("_test.star"):
            for one in ast.parse(text).body:
                if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                    got = functions[one.name].args
                    assert [a.arg for a in got.args] == [a.arg for a in one.args.args]
                    assert path in (ast.get_docstring(functions[one.name]) or "")


def test_every_parameter_of_a_hook_has_a_type() -> None:
    known = {name for hook in HOOKS.values() for name in hook.parameters}
    assert known == PARAMETERS.keys()


def test_types_are_those_of_python() -> None:
    assert type_of("list[NodeTerm]?") == "list[NodeTerm] | None"
    assert type_of("dict[str, dict[str, Fact?]]") == "dict[str, dict[str, Fact | None]]"
    assert type_of("dict[str, any]") == "dict[str, Any]"


@pytest.mark.slow("runs a type checker")
def test_facts_of_the_clock_need_no_test_for_none(tmp_path: Path) -> None:
    """A type checker of the editor wanted one where the clock is read as the documents do it."""
    (tmp_path / "stub.pyi").write_text(stub_text())
    names = [f"facts[{name!r}].value" for name in CLOCK_FACTS]
    names += [f"facts.get({name!r}).value" for name in CLOCK_FACTS]
    policy = "from stub import Cluster\n\ndef pre_enqueue(cluster: Cluster) -> object:\n"
    policy += "    facts = cluster.facts\n    for name in facts:\n        name.upper()\n"
    policy += f"    return {' + '.join(names)} + len(facts)\n"
    (tmp_path / "policy.py").write_text(policy)
    wrong = "\ndef other(cluster: Cluster) -> object:\n    return cluster.facts['load'].text\n"
    (tmp_path / "wrong.py").write_text(policy + wrong)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache")]
    # Of the stub, which an editor does not check.
    command += ["--disable-error-code", "overload-overlap", "--disable-error-code", "override"]
    for file, code in (("policy.py", 0), ("wrong.py", 1)):
        done = subprocess.run(
            [*command, file], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
    assert 'Item "None" of "Fact | None" has no attribute "text"' in done.stdout


# --- the command -----------------------------------------------------------------------------


def test_the_stub_is_written_and_checked(tmp_path: Path) -> None:
    run = CliRunner()
    assert run.invoke(main, ["stubs", str(tmp_path), "--check"]).exit_code == 1
    result = run.invoke(main, ["stubs", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert run.invoke(main, ["stubs", str(tmp_path), "--check"]).exit_code == 0
    printed = run.invoke(main, ["stubs", "--stdout"]).stdout
    assert (tmp_path / FILE).read_text() == printed
    (tmp_path / FILE).write_text(printed + "# another version\n")
    assert run.invoke(main, ["stubs", str(tmp_path), "--check"]).exit_code == 1
    said = run.invoke(main, ["stubs", str(tmp_path), "--check", "--output", "json"])
    assert json.loads(said.stdout) == {"file": str(tmp_path / FILE), "current": False}
    (tmp_path / "file").touch()
    (tmp_path / FILE).write_bytes(b"\xff")
    assert run.invoke(main, ["stubs", str(tmp_path), "--check"]).exit_code == 1
    for wrong in (
        ["--check", "--stdout"],
        ["--serve", ""],
        ["--serve", "/no/such/server"],
        ["--serve", "a 'b"],
    ):
        assert run.invoke(main, ["stubs", str(tmp_path), *wrong]).exit_code == 2, wrong
    assert run.invoke(main, ["stubs", str(tmp_path / "file")]).exit_code == 2


# --- the types of parameters -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("def f(pod):", "def f(pod):  # type: (Pod) -> Any", id="known"),
        pytest.param("def f(a, b = 1):", "def f(a, b = 1):", id="unknown"),
        pytest.param(
            "def f(pod, a = [1, (2, 3)]):\n    pass",
            "def f(pod, a = [1, (2, 3)]):  # type: (Pod, Any) -> Any\n    pass",
            id="defaults with commas",
        ),
        pytest.param(
            "def f(\n        pod,  # a) b\n        node = \")\",\n):  # why\n    pass",
            "def f(\n        pod,  # a) b\n        node = \")\",\n):  # type: (Pod, Node) -> Any\n"
            "    pass",
            id="several lines",
        ),
        pytest.param(
            "def f(*pod, **node):",
            "def f(*pod, **node):",
            id="a list of pods is no pod",
        ),
        pytest.param("def f(pod): return 1", "def f(pod): return 1", id="one line"),
        pytest.param("def f(pod", "def f(pod", id="half written"),
        pytest.param("def f(pod: X):", "def f(pod: X):", id="a type of its own"),
    ],
)  # fmt: skip
def test_parameters_get_their_types_behind_the_line(text: str, want: str) -> None:
    assert typed(text) == want


@given(st.text("def f(pod, node=[]):#'\"\n \\*", max_size=60))
def test_nothing_moves_whatever_is_written(text: str) -> None:
    before, after = text.split("\n"), typed(text).split("\n")
    assert len(before) == len(after)
    for line, got in zip(before, after, strict=True):
        if line != got:
            kept, _, comment = got.partition("  # type: (")
            assert comment
            assert line.startswith(kept)
            assert not line[len(kept) :].strip() or line[len(kept) :].strip().startswith("#")


@pytest.mark.parametrize("file", sorted(shipped_files()))
def test_shipped_policies_stay_what_they_are(file: str) -> None:
    text = shipped_files()[file]
    assert ast.dump(ast.parse(typed(text))) == ast.dump(ast.parse(text))


# --- between editor and server -----------------------------------------------------------------


def test_what_passes_is_changed_only_where_types_are_missing(tmp_path: Path) -> None:
    """`cat` for a server: what it was told comes back."""
    uri, text = (tmp_path / "a.star").as_uri(), "def score(pod, node):\n"
    opened = {"textDocument": {"uri": uri, "text": text}}
    edit = {"range": {"start": {"line": 0, "character": 0}}, "text": text}
    edited = {"textDocument": {"uri": uri}, "contentChanges": [{"text": text}, edit]}
    test = {"textDocument": {"uri": uri.replace("a.star", "a_test.star"), "text": text}}
    sent: list[dict[str, Any]] = [
        {"method": "textDocument/didOpen", "params": opened},
        {"method": "textDocument/didChange", "params": edited},
        {"method": "textDocument/didOpen", "params": test},
        {"method": "textDocument/publishDiagnostics", "params": {"diagnostics": []}},
        {"id": 1, "result": {"capabilities": {"textDocumentSync": 2, "hoverProvider": True}}},
        {"id": 2, "result": None},
        {"method": "ä", "params": [1]},
    ]
    reported = io.BytesIO()
    for message in sent:
        write_message(reported, message)
    reported.seek(0)
    heard = io.BytesIO()
    assert serve(["cat"], reported, heard) == 0
    heard.seek(0)
    # What `check` finds comes when it is found, or not before the end.
    came = iter(lambda: read_message(heard), None)
    got = [one for one in came if one.get("method") != "textDocument/publishDiagnostics"]
    types = "def score(pod, node):  # type: (Pod, Node) -> Any\n"
    assert got[0]["params"]["textDocument"]["text"] == types
    assert [one["text"] for one in got[1]["params"]["contentChanges"]] == [types, text]
    assert got[2]["params"] == test
    sync = {"openClose": True, "change": 1}
    assert got[3]["result"]["capabilities"] == {"textDocumentSync": sync, "hoverProvider": True}
    assert got[4:] == sent[5:]


def test_what_would_write_python_into_a_policy_does_not_reach_the_editor() -> None:
    edit = {"range": {}, "newText": "import os\n"}
    providers = ("codeAction", "documentOnTypeFormatting", "executeCommand", "diagnostic")
    can = {f"{name}Provider": True for name in (*providers, "completion")}
    answer = to_editor({"id": 1, "result": {"capabilities": can}})
    assert answer is not None
    assert answer["result"]["capabilities"].keys() == {"textDocumentSync", "completionProvider"}
    items: list[Any] = [
        {"label": "os", "kind": 9, "additionalTextEdits": [edit]},
        {"label": "__class__", "kind": 6},
        {"label": "while", "kind": 14},
        {"label": "issubclass", "kind": 3},
        {"label": "classmethod", "kind": 7},
        {"label": "casefold", "kind": 2},
        {"label": "for", "kind": 14},
        {"label": "import_", "kind": 6, "additionalTextEdits": []},
        {"label": "sorted", "kind": 3},
        {"label": "format", "kind": 2},
        {"label": "encode", "kind": 2},
    ]
    hint = {"label": ": Any", "position": {"line": 0, "character": 5}}
    place = {"uri": "file:///a.star", "range": {}}
    for sent, want in (
        (items, items[6:]),
        ({"isIncomplete": True, "items": items}, {"isIncomplete": True, "items": items[6:]}),
        ([{**hint, "textEdits": [edit]}], [hint]),
        ([place], [place]),
    ):
        assert to_editor({"id": 2, "result": sent}) == {"id": 2, "result": want}


FINDINGS: Final = """\
args = plugin_args(threshold = 90, zones = ["a"])

def filter(pod, node):
    # 😀 counts as two
    return "😀" if node.lables else None
"""


def test_the_editor_shows_what_check_finds_and_completes_arguments(tmp_path: Path) -> None:
    directory = tmp_path / "my policies"
    directory.mkdir()
    (directory / "other.star").write_text("LIMIT = 3\n")
    uri, published = (directory / "a.star").as_uri(), queue.Queue[dict[str, Any]]()
    documents = Documents(published.put)

    def shown() -> dict[str, Any]:
        message = published.get(timeout=60)
        assert message["method"] == "textDocument/publishDiagnostics"
        assert message["params"]["uri"] == uri
        found: dict[str, Any] = message["params"]
        return found

    documents.put(uri, FINDINGS)  # not saved yet
    [found] = shown()["diagnostics"]
    start = FINDINGS.split("\n")[4].index("lables")
    assert found == {
        "range": {
            "start": {"line": 4, "character": start + 1},
            "end": {"line": 4, "character": start + 1 + len("lables")},
        },
        "severity": 1,
        "source": "starsched",
        "message": "`node` has no field `lables`\nhint: did you mean `labels`?",
    }
    # What is loaded is read from the disk; a lint has its name.
    documents.put(uri, 'load("other.star", "LIMIT")\n\ndef score(pod, node):\n    return 1\n')
    [found] = shown()["diagnostics"]
    assert (found["severity"], found["code"]) == (2, "unused-load")
    # While a line is written.
    writing = FINDINGS.replace("node.lables", "args.")
    documents.put(uri, writing)
    place = {"line": 4, "character": start + 1}
    asked: dict[str, Any] = {
        "id": 7,
        "method": "textDocument/completion",
        "params": {"textDocument": {"uri": uri}, "position": place},
    }
    answer = own_answer(asked, documents)
    assert answer is not None
    offered = {one["label"]: one["detail"] for one in answer["result"]}
    assert offered == {"threshold": "default: 90", "zones": 'default: ["a"]'}
    of_node = {**asked["params"], "position": {"line": 2, "character": 3}}
    assert own_answer({**asked, "params": of_node}, documents) is None
    assert shown()["diagnostics"]
    documents.close(uri)
    assert shown()["diagnostics"] == []


def test_a_server_that_ends_ends_the_command() -> None:
    reader, writer = os.pipe()  # an editor that says nothing
    with open(reader, "rb") as silent, open(writer, "wb"):
        command = [sys.executable, "-m", "workbench.cli.main", "stubs", "--serve", "sh -c 'exit 7'"]
        done = subprocess.run(command, stdin=silent, capture_output=True, timeout=60, check=False)
    assert done.returncode == 7, done.stderr


# --- a real server ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> str:
    """The command of basedpyright; installed if it is missing."""
    return shlex.join(script("devkit/tools/basedpyright/build.py").command())


@pytest.fixture(scope="module")
def editor(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageClient]:
    """An editor whose server is `starsched stubs --serve`, in a folder with stubs."""
    root = tmp_path_factory.mktemp("policies")
    assert CliRunner().invoke(main, ["stubs", str(root)]).exit_code == 0
    bridge = [sys.executable, "-m", "workbench.cli.main", "stubs", "--serve", server]
    with LanguageClient(bridge, root) as client:
        yield client


def at(text: str, ending: str) -> tuple[int, int]:
    """The place behind *ending*, which a line of *text* ends with."""
    [line] = [n for n, row in enumerate(text.split("\n")) if row.endswith(ending)]
    return line, len(text.split("\n")[line])


@pytest.mark.slow("starts basedpyright")
def test_a_real_server_completes_pods_nodes_and_what_is_in_them(editor: LanguageClient) -> None:
    uri = editor.open("fresh.star", "def filter(pod, node):\n    return pod.\n")
    offered = editor.completions(uri, 1, 15)
    assert set(VIEWS["pod"]) <= offered.keys()
    assert "taints" not in offered
    editor.change(uri, 2, POLICY)
    assert set(VIEWS["node"]) <= editor.completions(uri, *at(POLICY, "- node.")).keys()
    # What a loop goes through has a type as well, and so has what a helper is given.
    assert set(RECORDS["Taint"]) <= editor.completions(uri, *at(POLICY, "if taint.")).keys()
    assert {"min", "max", "count"} <= editor.completions(uri, *at(POLICY, "over.")).keys()
    line, _ = at(POLICY, 'get("cpu", 0)')
    assert "what it offers; millicores, bytes, whole units" in editor.hover(uri, line, 18)


@pytest.mark.slow("starts basedpyright")
def test_a_real_server_completes_built_ins_and_those_of_tests(editor: LanguageClient) -> None:
    text = "def pre_filter(pod):\n    return re\n"
    offered = editor.completions(editor.open("names.star", text), 1, 13)
    assert {"reject", "record"} <= offered.keys()
    text = "def test_it():\n    asserts.\n    make_\n"
    uri = editor.open("names_test.star", text)
    assert {"fits", "rejects", "scores", "for_any"} <= editor.completions(uri, 1, 12).keys()
    assert {"make_pod", "make_node", "make_group"} <= editor.completions(uri, 2, 9).keys()
    text = "def group_of(pod):\n    return math.\n"
    assert "clamp" in editor.completions(editor.open("math.star", text), 1, 16)


@pytest.mark.slow("starts basedpyright")
def test_a_real_server_says_nothing_of_python_errors(editor: LanguageClient) -> None:
    editor.completions(editor.open("load.star", POLICY), 0, 0)
    assert {one["source"] for one in editor.diagnosed} <= {"starsched"}
    assert "diagnosticProvider" not in editor.capabilities
    assert {method for method in editor.registered if "diagnostic" in method.lower()} == set()
    assert editor.capabilities["textDocumentSync"]["change"] == 1


@pytest.mark.slow("starts basedpyright")
def test_a_real_server_offers_no_python_that_starlark_does_not_have(editor: LanguageClient) -> None:
    text = "def filter(pod, node):\n    os\n    whi\n    pod.\n    x = max()\n    retu\n"
    uri = editor.open("python.star", text)
    offered = [editor.completions(uri, *place) for place in ((1, 6), (2, 7), (3, 8), (5, 8))]
    for item in (item for items in offered for item in items.values()):
        assert "additionalTextEdits" not in item, item
        assert not item["label"].startswith("__"), item
    assert "while" not in offered[1]
    assert "return" in offered[3]
    assert not {"codeActionProvider", "executeCommandProvider"} & editor.capabilities.keys()
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 5, "character": 0}}
    hints = editor.ask("textDocument/inlayHint", {"textDocument": {"uri": uri}, "range": span})
    assert hints
    assert all("textEdits" not in hint for hint in hints)


@pytest.mark.slow("starts basedpyright")
def test_an_editor_that_names_no_folder_has_the_stubs_of_where_it_runs(
    server: str, tmp_path: Path
) -> None:
    assert CliRunner().invoke(main, ["stubs", str(tmp_path)]).exit_code == 0
    bridge = [sys.executable, "-m", "workbench.cli.main", "stubs", "--serve", server]
    with LanguageClient(bridge, tmp_path, names_folder=False) as client:
        uri = client.open("fresh.star", "def filter(pod, node):\n    return node.\n")
        assert set(VIEWS["node"]) <= client.completions(uri, 1, 16).keys()
