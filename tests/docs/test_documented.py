"""Every flag, metric, event reason, endpoint, hook and field is documented, and links work."""

import ast
import functools
import importlib
import re
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import click
import pytest

from engine.policy.config import PolicyRuntime, decode_documents
from engine.surfaces.live.routes import FILTERED, POLICIES
from engine.surfaces.page.routes import ACTIVITY, NODE
from engine.telemetry.families import FAMILIES
from tests.scripts import sources
from workbench.cli.main import COMMANDS
from workbench.lint.finding import LINTS

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
README = (ROOT / "README.md").read_text()
AUTHORING = (ROOT / "docs" / "authoring.md").read_text()
COMMANDS_DOC = "".join(p.read_text() for p in sorted((ROOT / "docs" / "commands").glob("*.md")))
DOCUMENTS = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").glob("*/README.md")),
    *(
        ROOT / name
        for name in (
            "README.md",
            "CHANGELOG.md",
            "CODE_OF_CONDUCT.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
        )
    ),
]

_PREFIXES = (
    "(scheduler|starsched|leader_election|dynamic_resource_allocation|kubernetes|rest_client|go)_"
)
_METRIC = re.compile(rf"^{_PREFIXES}[a-z0-9_]+$")


def flags() -> Iterator[tuple[str, str]]:
    """(command, long flag) of the whole command line, hidden ones left out."""
    for name, (module, attribute, _) in COMMANDS.items():
        command: click.Command = getattr(importlib.import_module(module), attribute)
        parts = command.commands.values() if isinstance(command, click.Group) else ()
        for parameter in (*command.params, *chain(*(part.params for part in parts))):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                for flag in (*parameter.opts, *parameter.secondary_opts):
                    if flag.startswith("--"):
                        yield name, flag


def nodes_of_source(marker: str) -> Iterator[ast.AST]:
    """The syntax tree, node by node, of each file of the engine that contains *marker*."""
    for path in sorted(sources("engine", "workbench")):
        text = path.read_text()
        if re.search(marker, text):
            yield from ast.walk(ast.parse(text))


def metric_names() -> frozenset[str]:
    """The name of every metric in the table; of no other is anything exported."""
    assert all(_METRIC.match(name) for name in FAMILIES)
    return frozenset(FAMILIES)


@functools.cache
def event_reasons() -> frozenset[str]:
    """Every reason that an event is recorded with: the constants whose name says so, and texts."""
    found = set()
    for node in nodes_of_source(r"_REASON|\brecord\("):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            value = node.value
            if (
                node.target.id.endswith("_REASON")
                and isinstance(value, ast.Constant)
                and isinstance(value.value, str)
            ):
                found.add(value.value)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "record"
        ):
            for keyword in node.keywords:
                if keyword.arg == "reason" and isinstance(keyword.value, ast.Constant):
                    found.add(str(keyword.value.value))
    return frozenset(found)


def endpoints() -> list[str]:
    """Every path that is served, as the source has them."""
    files = [
        *(ROOT / "engine" / "io" / "endpoints").glob("*.py"),
        ROOT / "engine" / "app" / "surfaces.py",
    ]
    source = "".join(file.read_text() for file in files)
    paths = set(re.findall(r'Route\("(/[a-z]+)"|_route\("(/[a-z/]+)"', source))
    live = {"/" + path.split("/")[1] for path in (*FILTERED, POLICIES, NODE, ACTIVITY)}
    return sorted({"/healthz", "/livez", "/readyz", *live, *filter(None, chain(*paths))})


def test_the_search_finds_what_is_there() -> None:
    assert ("run", "--policies") in list(flags())
    assert "scheduler_schedule_attempts_total" in metric_names()
    assert "starsched_sandbox_restarts_total" in metric_names()
    assert {"Scheduled", "FailedScheduling", "PolicyRejected"} <= event_reasons()
    assert {"/metrics", "/metrics/slis", "/policies", "/statusz"} <= set(endpoints())


def test_every_flag_is_documented() -> None:
    missing = [
        f"starsched {command} {flag}"
        for command, flag in flags()
        if not re.search(rf"{flag}(?![\w-])", OPERATIONS if command == "run" else COMMANDS_DOC)
    ]
    assert missing == []


def test_every_lint_is_documented() -> None:
    assert [lint for lint in LINTS if f"| `{lint}` |" not in AUTHORING] == []


def test_no_flag_is_documented_that_does_not_exist() -> None:
    known = {flag for _, flag in flags()} | {"--help", "--version"}
    section = OPERATIONS.partition("## Flags")[2].partition("\n## ")[0]
    assert set(re.findall(r"`(--[a-z-]+)", section)) <= known


def test_the_metrics_that_exist_are_documented_with_their_labels_and_no_others() -> None:
    section = OPERATIONS.partition("## Metrics")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|([^|]*)\|", section, re.MULTILINE)
    documented = {name: labels.strip() for name, labels in rows}
    assert documented == {name: ", ".join(FAMILIES[name].labels) for name in metric_names()}


@functools.cache
def _tests_of(file: str) -> frozenset[str]:
    """The tests of a file below `tests`; none if there is no such file."""
    path = ROOT / "tests" / file.removeprefix("tests/")
    if not path.exists():
        return frozenset()
    return frozenset(re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda one: one.stem)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
    assert [f"{file}::{name}" for file, name in named if name not in _tests_of(file)] == []
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    made = [file for file in files if "NAME" not in file]  # a pattern, for people who add one
    assert [file for file in made if not (ROOT / file).exists()] == []
    everywhere = {str(one.relative_to(ROOT)) for one in (ROOT / "tests").rglob("test_*.py")}
    alone = re.findall(r"`(test_\w+)`", text)
    assert [name for name in alone if not any(name in _tests_of(one) for one in everywhere)] == []


def test_each_row_of_the_threat_model_names_its_tests() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    tables = re.findall(r"^\| could want \|.*\n\|[- |]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 40
    assert [row for row in rows if ".py::test_" not in row.rsplit("|", 2)[1]] == []


#: What kube-scheduler 1.37.2 and 1.38.0-beta.0 register with their default gates.
_OF_KUBE_SCHEDULER = frozenset(
    re.findall(
        r"\w+",
        """
batch_attempts_total batch_cache_flushed_total batch_rescore_attempts_total
batch_rescore_duration_seconds cache_size dra_bindingconditions_allocations_total
dra_bindingconditions_wait_duration_seconds event_handling_duration_seconds
framework_extension_point_duration_seconds get_node_hint_duration_seconds goroutines
inflight_events pending_pods permit_wait_duration_seconds plugin_evaluation_total
plugin_execution_duration_seconds pod_scheduled_after_flush_total pod_scheduling_attempts
pod_scheduling_sli_duration_seconds pre_queueing_hint_evaluations_total preemption_attempts_total
preemption_goroutines_duration_seconds preemption_goroutines_execution_total preemption_victims
queue_incoming_entities_total queue_incoming_pods_total queued_entities
queueing_hint_execution_duration_seconds schedule_attempts_total
scheduling_algorithm_duration_seconds scheduling_attempt_duration_seconds
store_schedule_results_duration_seconds store_schedule_results_total unschedulable_pods
""",
    )
)


def test_each_metric_of_kube_scheduler_is_here_or_is_said_not_to_be() -> None:
    section = (ROOT / "docs/parity.md").read_text().partition("## Metrics that are not here")[2]
    missing = set(re.findall(r"`(scheduler_\w+)`", section))
    want = {f"scheduler_{name}" for name in _OF_KUBE_SCHEDULER}
    assert missing == want - metric_names()


def test_each_metric_of_groups_is_here() -> None:
    """What kube-scheduler 1.37.2 registers with its gate GenericWorkload."""
    names = """
    podgroup_schedule_attempts_total podgroup_scheduling_algorithm_duration_seconds
    podgroup_scheduling_attempt_duration_seconds preemption_evaluation_duration_seconds
    preemption_execution_duration_seconds preemption_pdb_violations_total
    preemption_workload_disruptions workload_preemption_attempts_total workload_preemption_victims
    """
    assert {f"scheduler_{name}" for name in names.split()} <= metric_names()


def test_every_event_reason_is_documented() -> None:
    assert [one for one in sorted(event_reasons()) if f"| `{one}` |" not in OPERATIONS] == []


def test_every_endpoint_is_documented() -> None:
    assert [path for path in endpoints() if f"| `{path}` |" not in OPERATIONS] == []


def test_the_runtime_document_that_is_shown_holds_the_defaults() -> None:
    text = OPERATIONS.partition("apiVersion: starsched.dev/v1")[2].partition("```")[0]
    got = decode_documents({"runtime.yaml": f"apiVersion: starsched.dev/v1{text}"})
    assert got.problems == ()
    assert got.runtime == PolicyRuntime()
    for name in (
        "deadline",
        "errorRate",
        "latency",
        "window",
        "minDecisions",
        "lostTime",
        "pending",
        "callDepth",
    ):
        assert f"{name}:" in text


def test_every_make_target_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    phony = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert phony is not None
    for target in phony[1].split():
        assert re.search(rf"^  {target} +\S", shown, re.MULTILINE), target
    # After the usage, each group of targets has a title.
    groups = shown.split("\n\n")[1:]
    assert len(groups) > 4
    for group in groups:
        assert re.match(r"[A-Z][a-z ]+\n  \w", group), group


def links() -> Iterator[tuple[Path, str]]:
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", "", document.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            yield document, target


def leads_somewhere(document: Path, target: str) -> bool:
    if "://" in target:
        return False  # the documents lead to nothing outside
    path, _, anchor = target.partition("#")
    found = (document.parent / path).resolve() if path else document
    if not found.exists():
        return False
    headings = re.findall(r"^#+ (.+)$", found.read_text(), re.MULTILINE) if anchor else []
    slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
    return not anchor or anchor in slugs


def test_links_lead_somewhere() -> None:
    found = [*links()]
    assert len(found) > 50
    assert [f"{d.name}: {t}" for d, t in found if not leads_somewhere(d, t)] == []


def test_every_decision_is_listed_with_its_status() -> None:
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^\| \[(.+)\]\((\d.+\.md)\) \| (.+) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    want = []
    for page in sorted(folder.glob("0*.md")):
        lines = page.read_text().splitlines()
        status = lines[2].removeprefix("Status: ").removesuffix(".")
        want.append((lines[0].removeprefix("# "), page.name, status))
    assert listed == want


def test_every_path_in_the_readme_s_map_exists() -> None:
    tree = README.partition("```text")[2].partition("```")[0]
    names = {line.split()[0].rstrip("/") for line in tree.strip().splitlines()}
    assert len(names) > 5
    assert [name for name in sorted(names) if not (ROOT / name).is_dir()] == []


def named_in_commands(document: Path) -> tuple[set[str], set[str]]:
    """The paths of the tree and the targets of make that the commands of *document* name."""
    folders = "engine|workbench|devkit|tests|deploy|docs"
    text = document.read_text()
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    paths = re.findall(rf"(?<![\w/.~$-])(?:{folders})/[\w./-]*", commands)
    targets = re.findall(r"^make ([a-z][\w-]*)", commands, re.MULTILINE)
    return set(paths), set(targets) | set(re.findall(r"`make ([a-z][\w-]*)", text))


def test_what_a_command_names_is_there() -> None:
    """A page told to run a script that had become another one."""
    known = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in DOCUMENTS:
        paths, targets = named_in_commands(document)
        assert [path for path in sorted(paths) if not (ROOT / path).exists()] == [], document
        assert targets - known == set(), document


def test_commands_that_name_something_are_found() -> None:
    paths, targets = named_in_commands(ROOT / "docs" / "parity.md")
    assert "devkit/tools/go_programs.py" in paths
    assert "fuzz-parity" in targets
