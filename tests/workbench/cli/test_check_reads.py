"""`starsched check --reads`: what hooks read, what is reused, and what defeats it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engine.policy.bundle import build_bundle
from workbench.cli.main import main

pytestmark = pytest.mark.usefixtures("policies_load_in_process")


def check(directory: Path, text: str, *more: str) -> tuple[int, str]:
    (directory / "mine.star").write_text(text)
    result = CliRunner().invoke(main, ["check", str(directory), "--reads", *more])
    return result.exit_code, result.output


def as_json(directory: Path, text: str) -> Any:
    code, output = check(directory, text, "--output", "json")
    assert code == 0, output
    return json.loads(output)


def hooks_of(directory: Path, text: str) -> dict[str, Any]:
    return {hook["hook"]: hook for hook in as_json(directory, text)["hooks"]}


DOC = '"""Mine.\n\nHooks: {hooks}. Reads: some.\n"""\n\n'


def test_reads_are_narrowed_to_keys_and_shown_as_they_are_written(tmp_path: Path) -> None:
    text = DOC.format(hooks="filter") + (
        "def filter(pod, node):\n"
        '    return "no" if pod.labels.get("app") == node.labels.get("disk") else None\n'
    )
    (hook,) = as_json(tmp_path, text)["hooks"]
    assert (hook["pod"], hook["node"]) == (["labels[app]"], ["labels[disk]"])
    assert hook["reuse"] == "for pods alike in what it reads, on nodes alike in what it reads"
    _, shown = check(tmp_path, text)
    assert "labels[app]" in shown
    assert "labels[disk]" in shown
    assert "warning" not in shown


def test_what_a_placement_changes_is_named(tmp_path: Path) -> None:
    text = DOC.format(hooks="score") + "def score(pod, node):\n    return node.pod_count\n"
    hook = hooks_of(tmp_path, text)["score"]
    assert hook["reuse"].startswith("for every pod")
    assert "asked again when a placement changes pod_count" in hook["reuse"]


def test_what_facts_change_is_no_placement(tmp_path: Path) -> None:
    text = DOC.format(hooks="score") + (
        'def score(pod, node):\n    heat = node.facts["heat"]\n'
        "    return 0 if heat == None else min(node.pod_count, 100)\n"
    )
    hook = hooks_of(tmp_path, text)["score"]
    assert hook["reuse"].endswith("asked again when a placement changes pod_count or facts change")


def test_pods_that_share_answers_have_an_equal_state(tmp_path: Path) -> None:
    text = DOC.format(hooks="pre_score, score") + (
        "def pre_score(pod):\n    return state(most = pod.priority % 100)\n\n"
        "def score(pod, node, state):\n    return min(state.most, 100)\n"
    )
    reuse = hooks_of(tmp_path, text)["score"]["reuse"]
    assert reuse == "for every pod with an equal `state`, on every node"


def test_hooks_over_groups_and_the_cluster_say_so(tmp_path: Path) -> None:
    """A permit was said to be asked once for every pod, whatever its group."""
    text = DOC.format(hooks="filter, permit") + (
        "def filter(pod, node, cluster):\n"
        '    return "too few node(s)" if cluster.node_count < 3 else None\n\n'
        "def permit(pod, group):\n"
        "    return wait(9) if group != None and group.waiting < group.min_count else None\n"
    )
    hook = hooks_of(tmp_path, text)["permit"]
    assert hook["group"] == ["min_count", "waiting"]
    assert hook["reuse"] == "for every pod, while the group is the same in what it reads"
    _, shown = check(tmp_path, text)
    assert "group.min_count, group.waiting" in " ".join(shown.split())
    assert "cluster.node_count" in shown


def test_hooks_over_counters_say_so(tmp_path: Path) -> None:
    text = DOC.format(hooks="counters, score, normalize") + (
        'def counters(pod):\n    return [count_pods("zone", [pods_in([], {"app": "web"}, {})])]\n\n'
        "def pre_score(pod, counts):\n    return skip() if counts[0].is_empty else None\n\n"
        "def score(pod, node, counts):\n    return counts[0].here or 0\n\n"
        "def normalize(score, over):\n    return 0 if over.max == 0 else 100 * score // over.max\n"
    )
    hooks = hooks_of(tmp_path, text)
    assert hooks["score"]["counts"] is True
    assert "while the counts of the node's domains are the same" in hooks["score"]["reuse"]
    assert hooks["pre_score"]["reuse"] == "for every pod, while the same counters are empty"


@pytest.mark.parametrize(
    ("expression", "field", "line"),
    [
        ("pod.uid", "pod.uid", 7),
        ("pod.name", "pod.name", 7),
        ("pod.manifest", "pod.manifest", 7),
        ("[k for k in pod.labels]", "pod.labels", 7),
        ("[k for k in pod.annotations]", "pod.annotations", 7),
        ("node.name", "node.name", 7),
        ("node.manifest", "node.manifest", 7),
    ],
)
def test_what_defeats_reuse_is_a_warning_with_its_place_and_a_way_out(
    tmp_path: Path, expression: str, field: str, line: int
) -> None:
    text = DOC.format(hooks="filter") + (
        f'def filter(pod, node):\n    return "no" if {expression} else None\n'
    )
    (warning,) = as_json(tmp_path, text)["problems"]
    assert warning["severity"] == "warning"
    assert warning["file"] == str(tmp_path / "mine.star")
    assert warning["line"] == line
    assert f"`{field}`" in warning["message"]
    assert warning["hint"]


def test_the_place_is_that_of_the_hooks_own_read(tmp_path: Path) -> None:
    """It was that of the first read in the file, whichever hook it is in."""
    text = DOC.format(hooks="queue_key, filter, score") + (
        "def queue_key(pod):\n    return [pod.created_at, pod.name]\n\n"
        'def filter(pod, node):\n    return "no" if _late(pod) else None\n\n'
        "def _late(pod):\n    return pod.created_at > 99\n\n"
        "def score(pod, node):\n    return _of(pod)\n\n"
        "def _of(one):\n    return min(len(one.name), 100)\n"
    )
    warnings = as_json(tmp_path, text)["problems"]
    assert [(w["message"].split()[0], w["line"]) for w in warnings] == [
        ("filter()", 13),
        ("score()", 15),
    ]


@pytest.mark.parametrize("field", ["created_at", "start_time"])
def test_what_no_two_pods_share_is_reused_for_the_same_pod_only(tmp_path: Path, field: str) -> None:
    """The warning said that no answer is reused, and the line of the hook that pods share them."""
    text = DOC.format(hooks="filter") + (
        f'def filter(pod, node):\n    return "no" if pod.{field} == 7 else None\n'
    )
    assert hooks_of(tmp_path, text)["filter"]["reuse"].startswith("for the same pod only")


def test_a_pod_that_is_passed_on_whole_is_a_warning(tmp_path: Path) -> None:
    text = DOC.format(hooks="filter") + (
        'def filter(pod, node):\n    return "no" if str(pod) == "x" else None\n'
    )
    messages = [p["message"] for p in as_json(tmp_path, text)["problems"]]
    assert any("reads `pod`" in message for message in messages), messages


def test_warnings_do_not_fail_the_check_and_are_not_given_unasked(tmp_path: Path) -> None:
    text = DOC.format(hooks="filter") + (
        'def filter(pod, node):\n    return "no" if pod.uid else None\n'
    )
    code, output = check(tmp_path, text)
    assert code == 0
    assert "1 warning(s)" in output
    result = CliRunner().invoke(main, ["check", str(tmp_path)])
    assert "warning" not in result.output


def test_names_of_fields_are_whole_where_they_are_piped(tmp_path: Path) -> None:
    """They were cut at the 80 columns of a terminal that was not there: `labels[exampl…`."""
    (tmp_path / "p.star").write_text(
        "def filter(pod, node):\n"
        '    return node.labels.get("maintenance.example.com/until-when-it-is-over")\n'
    )
    result = CliRunner().invoke(main, ["check", "--reads", str(tmp_path)])
    assert "…" not in result.output
    assert "labels[maintenance.example.com/until-when-it-is-over]" in result.output


def test_what_hooks_read_next_to_a_broken_file_is_reported_as_unknown(tmp_path: Path) -> None:
    """The table was empty, and nothing said why."""
    (tmp_path / "p.star").write_text("def filter(pod, node):\n    return None\n")
    (tmp_path / "q.star").write_text("def filter(pod\n")
    result = CliRunner().invoke(main, ["check", "--reads", str(tmp_path / "p.star")])
    assert "reads are not known" in result.stderr
    assert "q.star cannot run" in result.stderr
    assert "policy" not in result.stdout.split("checked")[0].replace("policy file(s)", "")


def test_a_byte_order_mark_and_a_link_in_a_circle_do_no_harm(tmp_path: Path) -> None:
    """The mark was a "Parse error: invalid input" of nothing that can be seen."""
    text = b"\xef\xbb\xbfdef filter(pod, node):\r\n    return None\r\n"
    (tmp_path / "p.star").write_bytes(text)
    (tmp_path / "circle").symlink_to(tmp_path)
    result = CliRunner().invoke(main, ["check", "--strict", str(tmp_path)])
    assert (result.exit_code, result.output) == (0, "1 policy file(s) checked: no problems\n")
    assert build_bundle({"p.star": text.decode()}).policies


def test_fix_keeps_how_lines_end(tmp_path: Path) -> None:
    """Every line of a file with CRLF was changed."""
    path = tmp_path / "p.star"
    load = b'load("@std/numbers.star", "go_div")\r\n'
    path.write_bytes(load + b"def filter(pod, node):\r\n    return None\r\n")
    CliRunner().invoke(main, ["check", "--fix", str(path)])
    assert path.read_bytes().strip() == b"def filter(pod, node):\r\n    return None"


@pytest.mark.parametrize("hook", ["tie_key", "candidate_key"])
def test_the_name_may_decide_between_nodes_that_are_alike(tmp_path: Path, hook: str) -> None:
    """The page of tie_key says so, and its example was warned of, with a hint that is no help."""
    given = "pod, node" if hook == "tie_key" else "node, victims"
    text = DOC.format(hooks=hook) + f"def {hook}({given}):\n    return node.name\n"
    assert as_json(tmp_path, text)["problems"] == []
    text = text.replace("node.name", 'node.manifest["kind"]')
    assert "`node.manifest`" in as_json(tmp_path, text)["problems"][0]["message"]
