"""What is wrong with input is one line with its place and exit code 2, in every command."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.policy.config import API_VERSION, KIND
from tests.searching import examples
from workbench.cli.main import main

NODE = "kind: Node\nmetadata: {name: a}\nstatus: {allocatable: {cpu: 1, pods: 9}}\n---\n"
POD = "kind: Pod\nmetadata: {name: p}\n"
DEEP = "[" * 200_000 + "]" * 200_000
LOG_HEAD = '{"n": 1, "t": 0, "e": "log", "format": 1}\n'
NODE_COLUMNS = "sn,cpu_milli,memory_mib,gpu,model\n"
POD_COLUMNS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time\n"


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def error_of(result: Result) -> str:
    """The one line of an error; fails for a traceback, or another exit code."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit), result.exception
    lines = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, result.output
    return lines[0].removeprefix("Error: ")


@pytest.fixture
def broken(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    name, content = request.param
    path: Path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


BROKEN = [
    pytest.param(("x.yaml", NODE + "kind: [\n"), ":6:1: want YAML: ", id="YAML"),
    pytest.param(
        ("x.yaml", NODE + "---\nkind:\n\tNode\n"),
        ":7:1: want YAML: tabs cannot indent: want spaces",
        id="a tab",
    ),
    pytest.param(
        ("x.yaml", NODE + POD + "kind: Node\n"),
        ":7:1: want YAML: the key `kind` is already used in line 5",
        id="a key twice",
    ),
    pytest.param(
        ("x.json", '{"kind": "List",\n "items": [\n  {"kind": }\n]}'),
        ":3:12: want JSON: ",
        id="JSON",
    ),
    pytest.param(
        ("x.json", '{"kind": "Node",\n "metadata": {"name": "a",\n "name": "b"}}'),
        ":3:2: want JSON: the key `name` is already used in line 2",
        id="a key twice in JSON",
    ),
    pytest.param(
        ("x.json", r'{"smile": "\ud83d\ude00", "kind": "Node", "kind": "Node"}'),
        ": want JSON: the key `kind` occurs twice in an object",
        id="a key twice in JSON that is no YAML",
    ),
    pytest.param(
        ("x.jsonl", '{"at": 1, "add": {"kind": "Node"}, "at": 2}'),
        ":1: want each key once in an object, got `at` twice",
        id="a key twice in an event",
    ),
    pytest.param(("x.yaml", ""), ": want objects, found none: it is empty", id="empty YAML"),
    pytest.param(("x.json", ""), ": want objects, found none: it is empty", id="empty JSON"),
    pytest.param(("x.jsonl", ""), ": want events, one a line, found none", id="empty events"),
    pytest.param(("x.csv", ""), ": want a table, found no line", id="empty CSV"),
    pytest.param(("x.csv", NODE_COLUMNS), ":2: want a row for each node or pod", id="no rows"),
    pytest.param(
        ("x.csv", "name,cpu\na,1\n"),
        ":1: want the columns of nodes: `cpu_milli`, `gpu`, `memory_mib`, `model`, `sn`, or of "
        "pods: `cpu_milli`, `gpu_milli`, `memory_mib`, `name`, `num_gpu`; got `name`, `cpu`",
        id="other header",
    ),
    pytest.param(
        ("x.csv", NODE_COLUMNS + "a,1,1,1,\nb,x,1,1,\n"),
        ":3: cpu_milli: want a whole number, got `x`",
        id="number",
    ),
    pytest.param(
        ("x.csv", POD_COLUMNS + "a,1,1,1,1,soon\n"),
        ":2: creation_time: want seconds, got `soon`",
        id="time",
    ),
    pytest.param(
        ("x.csv", NODE_COLUMNS + "a,1,1,1,\nb,10"), ":3: want 5 cells, got 2", id="cut-off row"
    ),
    pytest.param(("x.csv", b"a,b\n\xff,1\n"), ":2: want UTF-8 text", id="bytes"),
    pytest.param(("x.yaml", "a: b\nc: \xff".encode("latin1")), ":2: want UTF-8", id="YAML bytes"),
    pytest.param(("x.yaml", "just text\n"), ": document 1: want an object, got str", id="text"),
    pytest.param(
        ("x.yaml", "kind: ConfigMap\n"), ": want nodes and pods, got 1 ConfigMap", id="other kind"
    ),
    pytest.param(
        ("x.yaml", NODE + POD + "spec:\n  containers: 5\n"),
        ":8: document 2, Pod `p`: spec.containers: want an array, got `5` (int)",
        id="shape",
    ),
    pytest.param(
        ("x.yaml", NODE + POD + "spec: 5\n"),
        ":7: document 2, Pod `p`: spec: want an object, got `5` (int)",
        id="spec",
    ),
    pytest.param(
        ("x.yaml", NODE + "kind: PodGroup\nmetadata: {name: g}\nspec: 7\n"),
        ":7: document 2, PodGroup `g`: spec: want an object, got `7` (int)",
        id="group",
    ),
    pytest.param(
        ("x.yaml", NODE + "kind: PriorityClass\nmetadata: {name: c}\nvalue: x\n"),
        ":7: document 2, PriorityClass `c`: value: want an integer, got `x` (str)",
        id="priority",
    ),
    pytest.param(
        (
            "x.yaml",
            NODE + "kind: ResourceSlice\napiVersion: resource.k8s.io/v1beta1\n"
            "metadata: {name: s}\nspec: {devices: [{name: d, basic: {}}]}\n",
        ),
        ": ResourceSlice `s`: apiVersion: want `resource.k8s.io/v1`, got `resource.k8s.io/v1beta1`",
        id="devices of an older version",
    ),
    pytest.param(
        ("x.yaml", NODE + POD + "spec: {priorityClassName: high}\n"),
        ":7: document 2, Pod `p`: spec.priorityClassName: no PriorityClass with name high",
        id="class",
    ),
    pytest.param(
        ("x.jsonl", '{"at": 0, "add": {"kind": "Pod", "spec": 5}}'),
        ":1: spec: want an object, got `5` (int)",
        id="event",
    ),
    pytest.param(
        ("x.jsonl", '\n{"at": 0, "add": {"kind": "Pod"}, "for": "long"}'),
        ":2: want `for` to be seconds, got `long`",
        id="duration",
    ),
    pytest.param(("x.jsonl", "5\nx\n"), ":1: want an object with `at`", id="no time"),
    pytest.param(
        ("x.json", '{"kind": "ClusterSnapshot", "apiVersion": "starsched.dev/v2", "items": []}'),
        ": ClusterSnapshot: apiVersion: want `starsched.dev/v1`, got `starsched.dev/v2`",
        id="snapshot of a later version",
    ),
    pytest.param(
        ("x.json", '{"kind": "List", "items": ' + DEEP + "}"), ": want JSON: ", id="deep JSON"
    ),
    pytest.param(("x.jsonl", DEEP), ":1: want a JSON object: ", id="deep events"),
    pytest.param(
        ("decisions-000001.jsonl", LOG_HEAD + f'{{"n": 2, "t": 0, "e": "node", "x": {DEEP}}}\n'),
        ":2: want an entry of a log: ",
        id="deep log",
    ),
    pytest.param(
        ("x.yaml", NODE + POD + "spec: &spec {containers: [{name: c, args: [*spec]}]}\n"),
        ": want finite YAML: an alias refers to a node that contains it",
        id="a pod that holds itself",
    ),
    pytest.param(
        ("x.yaml", NODE + "x: " + "[" * 200_000 + "\n"),
        ": want YAML of at most 1,000 levels",
        id="YAML that is deeper than the stack",
    ),
    pytest.param(
        (
            "x.yaml",
            NODE
            + "a0: &a0 [x]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
        ),
        ": want a smaller YAML: its aliases stand for ",
        id="aliases that fill all memory",
    ),
    pytest.param(
        ("x.yaml", NODE + "null: 1\n"), ": want YAML that can be written as JSON: ", id="a null key"
    ),
    pytest.param(("x.yaml.gz", b"\x1f\x8b\x08\x00cut"), ": compressed file ended", id="gzip"),
]


@pytest.mark.parametrize(("broken", "want"), BROKEN, indirect=["broken"])
@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["simulate"], id="simulate"),
        pytest.param(["diff", "builtin", "builtin", "--on"], id="diff"),
    ],
)
def test_a_workload_is_refused_with_its_place(command: list[str], broken: Path, want: str) -> None:
    assert error_of(run(*command, broken)).startswith(f"{broken}{want}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "{}"],
        ["diff", "builtin", "builtin", "--on", "{}"],
        ["diff", "{}", "builtin", "--on", "x.yaml"],
        ["sweep", "{}", "--to", "out", "--set", "NodeResourcesFit.a=1"],
        ["explain", "p", "--snapshot", "{}"],
        ["explain", "-f", "{}", "--snapshot", "x.yaml"],
        ["bench", "{}"],
        ["bench", "builtin", "--on", "{}"],
        ["replay", "{}"],
        ["simulate", "x.yaml", "--policies", "{}"],
        ["simulate", "x.yaml", "--config", "{}"],
        ["conformance", "{}"],
    ],
    ids=" ".join,
)
def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(NODE + POD)
    answer = error_of(run(*(argument.format("absent.yaml") for argument in arguments)))
    assert "absent.yaml" in answer
    assert "no such" in answer or "does not exist" in answer


def _go_where_files_are(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be in *directory*, with a workload `x.yaml` and a policy in `policies`."""
    monkeypatch.chdir(directory)
    Path("x.yaml").write_text(NODE + POD)
    Path("policies").mkdir()
    Path("policies", "x.star").write_text("x = 1\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "p", "--snapshot", "x.yaml", "--config", "bytes"],
        ["simulate", "x.yaml", "--config", "bytes"],
        ["check", "policies", "--config", "bytes"],
        ["test", "policies", "--config", "bytes"],
        ["run", "--config", "bytes", "--secure-port", "0"],
        ["extender", "--policies", "builtin", "--config", "bytes", "--no-watch"],
        ["explain", "-f", "bytes", "--snapshot", "x.yaml"],
        ["explain", "p", "--snapshot", "bytes"],
        ["bench", "bytes"],
        ["replay", "bytes"],
        ["conformance", "bytes"],
        ["check", "bytes.star"],
        ["fmt", "bytes.star"],
    ],
    ids=" ".join,
)
def test_bytes_that_are_no_text_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    _go_where_files_are(tmp_path, monkeypatch)
    for name in ("bytes", "bytes.star"):
        Path(name).write_bytes(b"a: b\nc: \xff\n")
    assert error_of(run(*arguments)).startswith("bytes")


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "x.yaml", "--steps", "nowhere/file.csv"],
        ["simulate", "x.yaml", "--chart", "nowhere/file.svg"],
        ["test", "policies", "--coverage-html", "nowhere/file.html"],
        ["test", "policies", "--coverage-lcov", "nowhere/file.info"],
        [
            "sweep",
            "x.yaml",
            "--to",
            "x.yaml/file",
            "--set",
            "InterPodAffinity.hardPodAffinityWeight=1",
        ],
        ["new", "mine", "--to", "x.yaml/file"],
        ["eject", "NodeName", "--to", "x.yaml/file"],
        ["stubs", "x.yaml/file"],
    ],
    ids=" ".join,
)
def test_a_place_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    _go_where_files_are(tmp_path, monkeypatch)
    assert "file" in error_of(run(*arguments)).partition(":")[0]


@pytest.mark.parametrize("name", ["x.star", "runtime.yaml"])
def test_a_configuration_next_to_the_policies_has_to_be_one(tmp_path: Path, name: str) -> None:
    """Whatever lay there was taken for the one that counts anyway, and there was none."""
    (tmp_path / "x.star").write_text("def filter(pod, node):\n    return None\n")
    (tmp_path / "runtime.yaml").write_text(
        "apiVersion: starsched.dev/v1\nkind: PolicyRuntime\nlimits: {deadline: 1s}\n"
    )
    result = run("check", tmp_path, "--config", tmp_path / name)
    assert result.exit_code == 1, result.output
    assert f"{tmp_path / name}:" in result.output


def test_a_configuration_may_have_the_name_of_test_data(tmp_path: Path) -> None:
    """It was taken for the policies' own, where nobody looks for one in such a file."""
    (tmp_path / "x.star").write_text("def filter(pod, node):\n    return None\n")
    (tmp_path / "x_test.yaml").write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nodd: 1\n")
    result = run("check", tmp_path, "--config", tmp_path / "x_test.yaml")
    assert result.exit_code == 1, result.output
    assert f"{tmp_path / 'x_test.yaml'}:3:6: odd: unknown field" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "x.yaml", "--steps", "file.svg", "--chart", "./file.svg"],
        ["test", "policies", "--coverage-html", "file.x", "--coverage-lcov", "file.x"],
    ],
    ids=" ".join,
)
def test_two_outputs_want_a_file_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """The second was written over the first, in silence."""
    _go_where_files_are(tmp_path, monkeypatch)
    assert error_of(run(*arguments)).endswith("want a file for each output, got it twice")
    nowhere = run(
        "test", "policies", "--coverage-html", "/dev/null", "--coverage-lcov", "/dev/null"
    )
    assert "twice" not in nowhere.output


@pytest.mark.parametrize(
    ("head", "got"),
    [
        (LOG_HEAD.replace('"format": 1', '"format": 2'), "format 2"),
        ('{"n": 2, "t": 0, "e": "node"}\n', "`node`"),
    ],
)
def test_a_log_that_is_another_says_what_it_is(tmp_path: Path, head: str, got: str) -> None:
    path = tmp_path / "decisions-000001.jsonl"
    path.write_text(head)
    answer = error_of(run("replay", path))
    assert answer == f"{path}:1: want a decision log of format 1, got {got}"


_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["name", "namespace", "cpu", "items"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@pytest.mark.slow("computes for long")
@settings(max_examples=examples(40), deadline=None)
@given(
    manifest=st.fixed_dictionaries(
        {"kind": st.sampled_from(["Pod", "Node", "PodGroup", "Service", "PriorityClass", "List"])},
        optional=dict.fromkeys(("metadata", "spec", "status", "items", "value"), _plain),
    )
)
def test_no_manifest_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, manifest: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.json"
    path.write_text(json.dumps(manifest))
    result = run("simulate", path)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert (result.exit_code == 2) == ("Error: " in result.output)


@pytest.mark.slow("starts programs")
@pytest.mark.parametrize(
    ("command", "use", "code"),
    [
        (["check"], "str(_L30)", 1),
        (["check"], "_L30 == _R30", 1),
        (["simulate", "{cluster}", "--policies"], "{_T30: 1}", 2),
    ],
)
def test_a_top_level_that_does_not_end_is_ended_and_named(
    command: list[str], use: str, code: int, tmp_path: Path
) -> None:
    """Steps were bounded here and nothing else: thirty lines kept every command busy for hours.

    Each list holds the one before twice. A sandbox ended that by time, and no command had one.
    """
    lines = ["_L0 = [0]", "_R0 = [0]", "_T0 = (0,)"]
    for i in range(30):
        lines += [f"_{name}{i + 1} = [_{name}{i}, _{name}{i}]" for name in "LR"]
        lines.append(f"_T{i + 1} = (_T{i}, _T{i})")
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "slow.star").write_text(
        "\n".join([*lines, f"_USE = {use}", "def filter(pod, node): return None", ""])
    )
    (policies / "profile.yaml").write_text(
        f"apiVersion: {API_VERSION}\nkind: {KIND}\n"
        "profiles: [{plugins: {multiPoint: {enabled: [{name: slow}]}}}]\n"
    )
    cluster = tmp_path / "cluster.json"
    cluster.write_text('{"kind": "Node", "metadata": {"name": "a"}}')
    got = run(*(part.format(cluster=cluster) for part in command), policies)
    want = f"{policies / 'slow.star'}: loading did not answer within 2 s"
    assert (got.exit_code, want in got.output) == (code, True)
