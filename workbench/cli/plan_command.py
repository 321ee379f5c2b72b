"""`starsched plan`: what an edit of the policies would change in a cluster."""

import contextlib
import dataclasses
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.core.model.pod import Pod
from engine.files.cluster_file import Cluster, named, read_objects, take_given
from engine.files.given_objects import located
from engine.files.policy_files import PolicyFiles
from engine.files.templates import owners_of
from engine.io.informers import queue_sources
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.file_names import TEST_SUFFIX
from engine.rollout.trial import digest
from engine.surfaces.cli.cluster_option import cluster_options
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.input_error import InputError, input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX, build, config_option, read_config
from engine.surfaces.cli.progress_bar import tracked
from engine.surfaces.cli.terminal import wide_option
from engine.surfaces.cli.working import working
from engine.telemetry.logs import configure_logging
from engine.testing.process import run_tests_confined
from engine.testing.runner import failed
from workbench.cli.check_command import CheckReport, check_set, plain_problem, problem_line
from workbench.cli.cluster_reading import now_text, read_given
from workbench.cli.compared_texts import Side, compare_texts, decider_of
from workbench.cli.context_namespace import context_namespace
from workbench.cli.dry_run import DryRun, api_errors
from workbench.cli.explain_command import pod_in, template_path
from workbench.cli.fact_reading import FactsAt, read_facts
from workbench.cli.file_notes import admission_note, report_missing
from workbench.cli.input_path import InputPath
from workbench.cli.plan_answer import PlanAnswer, TestCounts, print_plan
from workbench.cli.policies_in_force import (
    CannotPlan,
    PolicyMap,
    bundle_in_force,
    configmap_option,
    read_in_force,
)
from workbench.cli.policy_option import read_texts
from workbench.plan.edited_objects import EditedObjects, edited_objects
from workbench.plan.new_pods import endings_of, new_pods
from workbench.plan.plan_index import PlanIndex, generation_of
from workbench.plan.what_if import Decider, Scene

SAME, DIFFERS, PROBLEMS = 0, 1, 2


@click.command("plan", short_help="Show what an edit of the policies would change.")
@click.argument("policies", required=False, metavar="[POLICIES]")
@click.option(
    "-f",
    "--filename",
    "filenames",
    type=InputPath(),
    multiple=True,
    help="Pods that need not exist, or workloads that would make them: where they would go. Can be "
    "given several times.",
)
@click.option(
    "--objects",
    "object_paths",
    type=InputPath(),
    multiple=True,
    help="Objects that the tree of queues reads, as they would be: in place of those of the same "
    "kind and name, or new. Can be given several times.",
)
@configmap_option
@cluster_options
@config_option("The KubeSchedulerConfiguration of the scheduler, if it has one of its own.")
@click.option(
    "--sample",
    "most_running",
    type=click.IntRange(min=0),
    default=200,
    show_default=True,
    metavar="N",
    help="How many running pods to decide as if they waited; the same ones each time, spread over "
    "their controllers.",
)
@click.option(
    "--waiting",
    "most_waiting",
    type=click.IntRange(min=0),
    default=2000,
    show_default=True,
    metavar="N",
    help="How many of the pods that wait to decide at most, chosen alike.",
)
@emulated_version_option("that of the cluster")
@wide_option
@output_option("How to print it.")
def plan_command(policies: str | None, **options: Any) -> None:
    """Show what POLICIES (a directory, or a file with a ConfigMap) would change in a cluster.

    Checks them, runs their tests, and decides pods by them and by the policies in force: those that
    wait, and some that run, each as if it waited. Reported are the pods that move, become pending,
    placed or gated, would evict others, or change places in the queue, and the queues of the tree
    that vanish or get other shares or places, with the file and line that cause it. Nothing is
    changed: listing rights are enough.

    With -f, pods that do not exist yet are decided one after the other, by POLICIES or by the
    policies in force: the node or the reason, victims, the position in the queue, and the earliest
    start.

    With --objects, the candidate sees objects of queues (ClusterQueue, Queue, ElasticQuota, ...) of
    files: what would become of queues and pods if they were applied. Without POLICIES, the policies
    in force do.

    The index that is printed stands for what the plan was made of; `starsched apply` wants it.

    Exit codes: 0 no difference (with -f: every pod gets a node), 1 differences (a pod gets none),
    2 the policies have problems or fail tests, or the plan cannot be made.

    \b
    Examples:
      starsched plan ./policies
      starsched plan ./policies --configmap starsched/starsched-policies --sample 1000
      starsched plan ./policies --output json | jq .measures
      starsched plan -f deployment.yaml
      starsched plan ./policies -f pods.yaml
      starsched plan --objects cluster-queues.yaml
    """
    filenames: tuple[Path, ...] = options["filenames"]
    if policies is None and not filenames and not options["object_paths"]:
        raise click.UsageError("want POLICIES, pods with -f, or queues with --objects")
    configure_logging(verbosity=-1, log_format="text")
    run = _Plan(policies, options)
    with contextlib.ExitStack() as stack:
        answer, code = run.answer(stack)
    if options["output"] == "json":
        print_json(msgspec.to_builtins(answer))
    else:
        print_plan(answer, run.problem_lines, run.next_command(answer.index))
    raise SystemExit(code)


class _Plan:
    """One run of the command."""

    def __init__(self, policies: str | None, options: Mapping[str, Any]) -> None:
        self._policies = policies
        self._options = options
        self._where: PolicyMap = options["policy_map"]
        self._config: Path | None = options["config"]
        self._report = CheckReport()
        self._failed_tests: list[Problem] = []
        self._notes: list[str] = []

    @property
    def problem_lines(self) -> list[str]:
        """Problems and warnings as they are printed."""
        lints = self._report.lints
        found = [problem_line(one, lints.get(one)) for one in dict.fromkeys(self._report.problems)]
        return [*found, *map(str, self._failed_tests)]

    def next_command(self, index: str) -> str:
        """The command that applies what was planned."""
        words = ["starsched", "apply", self._policies or "", "--index", index]
        words += [] if self._where.is_default else ["--configmap", str(self._where)]
        for name in ("kubeconfig", "context", "config"):
            if self._options[name] is not None:
                words += [f"--{name}", str(self._options[name])]
        return shlex.join(words)

    def answer(self, stack: contextlib.ExitStack) -> tuple[PlanAnswer, int]:
        """What is printed, and the exit code. *stack* closes what was opened."""
        options = self._options
        # 1. The candidate alone: checks and tests.
        files = None if self._policies is None else read_texts(self._policies)
        tests = None
        if files is not None:
            check_set(files, self._config, self._report)
            if not self._is_broken():
                with working("testing"):
                    tests = self._test(files)
        # 2. What is in force.
        with working("reading the policies in force"):
            base = read_in_force(self._where, options["kubeconfig"], options["context"])
        base_bundle, base_files, revision, notes = bundle_in_force(base, self._where, self._config)
        self._notes += notes
        found = PlanAnswer(
            in_force=revision,
            candidate="" if files is None else self._revision_of(files),
            changed=() if files is None else _changed(base.files, files.texts),
            problems=self._plain_problems(),
            tests=tests,
        )
        if self._is_broken() or self._failed_tests:
            return msgspec.structs.replace(found, notes=tuple(self._notes)), PROBLEMS
        candidate = base_bundle if files is None else self._built(files)
        # 3. The cluster.
        cluster = self._read_cluster(base_bundle, candidate)
        try:
            paths = (*options["filenames"], *options["object_paths"])
            with input_errors(paths), api_errors():
                found = self._decided(
                    found, cluster, base_bundle, base_files, candidate, files, stack
                )
        except KeyError as error:
            raise InputError(str(error.args[0])) from error
        report_missing(cluster)
        if note := admission_note(cluster):
            self._notes.append(note)
            found = msgspec.structs.replace(found, not_applied=cluster.not_applied)
        if unread := ", ".join(f"`{one}`" for one in sorted(cluster.unknown_kinds())):
            self._notes.append(
                f"{unread} not read: pods whose decisions depend on it are not compared"
            )
        if files is not None:
            index = PlanIndex(
                revision, base.resource_version, generation_of(cluster.nodes), digest(files.texts)
            )
            found = msgspec.structs.replace(found, index=str(index))
        is_pending = any(not one.outcome.node for one in found.new_pods)
        other_queues = found.queues is not None and bool(found.queues.changes)
        code = DIFFERS if found.differences or is_pending or other_queues else SAME
        return msgspec.structs.replace(found, notes=tuple(self._notes)), code

    # --- the texts ---------------------------------------------------------------------------

    def _is_broken(self) -> bool:
        return any(problem.severity == "error" for problem in self._report.problems)

    def _plain_problems(self) -> tuple[Mapping[str, Any], ...]:
        lints = self._report.lints
        found = [plain_problem(one, lints.get(one)) for one in dict.fromkeys(self._report.problems)]
        return (*found, *(plain_problem(one, None) for one in self._failed_tests))

    def _test(self, files: PolicyFiles) -> TestCounts:
        if not any(name.endswith(TEST_SUFFIX) for name in files.texts):
            return TestCounts()
        text = None if self._config is None else read_config(self._config)
        results = run_tests_confined(files.texts, text)
        for one in failed(results):
            self._failed_tests.append(_shown(one, files))
        skipped = sum(bool(one.skipped) for one in results)
        return TestCounts(
            passed=sum(one.passed for one in results) - skipped,
            failed=len(self._failed_tests),
            skipped=skipped,
        )

    def _built(self, files: PolicyFiles) -> Bundle:
        bundle, problems = build(files, self._config)
        if bundle is None:
            raise CannotPlan("\n".join(map(str, problems)))
        return bundle

    def _revision_of(self, files: PolicyFiles) -> str:
        bundle, _ = build(files, self._config)
        return "-" if bundle is None else bundle.revision

    # --- the cluster -------------------------------------------------------------------------

    def _read_cluster(self, *bundles: Bundle) -> Cluster:
        options = self._options
        try:
            cluster = read_given(
                (),
                options["kubeconfig"],
                options["context"],
                options["emulated_version"],
                list(dict.fromkeys(one for bundle in bundles for one in queue_sources(bundle))),
            )
        except click.UsageError:
            raise
        except click.ClickException as error:
            raise CannotPlan(error.message) from error
        cluster.taken_at = now_text()
        source = f"{CONFIGMAP_PREFIX}{self._where}"
        where = FactsAt(options["kubeconfig"], options["context"], source)
        seen = []
        for bundle in bundles:
            if bundle.runtime.facts in seen:
                continue
            seen.append(bundle.runtime.facts)
            documents, unread = read_facts(bundle.runtime.facts, where)
            known = {document.source for document in cluster.facts}
            cluster.facts += [one for one in documents if one.source not in known]
            cluster.missing.update(unread)
        if any(bundle.extenders for bundle in bundles):
            self._notes.append("extenders are configured; they are not called here")
        return cluster

    def _decided(
        self,
        found: PlanAnswer,
        cluster: Cluster,
        base_bundle: Bundle,
        base_files: PolicyFiles,
        candidate: Bundle,
        files: PolicyFiles | None,
        stack: contextlib.ExitStack,
    ) -> PlanAnswer:
        """*found* with the differences, or with the pods of `-f`."""
        objects = self._edited(cluster, base_bundle, candidate)
        found = msgspec.structs.replace(found, objects=tuple(objects.after))
        if self._options["filenames"]:
            cluster.others = [dict(one) for one in objects.among(objects.after)]
            new = self._new_pods(cluster)
            scene = Scene.of(cluster, candidate, new)
            self._note_unknown(scene)
            decider = decider_of(candidate, scene, stack)
            _require_profiles(decider, new)
            placed = {pod.uid: pod for pod in scene.placed()}
            pairs = [
                (placed[uid], one) for one in cluster.placed_pods() if (uid := _uid(one)) in placed
            ]
            answers = tuple(new_pods(decider, new, endings_of(pairs), tracked))
            return msgspec.structs.replace(found, new_pods=answers)
        compared = compare_texts(
            cluster,
            Side(base_bundle, base_files),
            Side(candidate, base_files if files is None else files),
            self._config,
            objects=objects,
            most_waiting=self._options["most_waiting"],
            most_running=self._options["most_running"],
            note_unknown=self._note_unknown,
        )
        return msgspec.structs.replace(
            found,
            measures=compared.measures,
            differences=compared.differences,
            queues=compared.queues,
        )

    def _edited(self, cluster: Cluster, *bundles: Bundle) -> EditedObjects:
        """The objects of *cluster* that trees of queues read, with those of `--objects`."""
        options = self._options
        given = [one for path in options["object_paths"] for one in read_objects(path)]
        read = [one for bundle in bundles for one in queue_sources(bundle)]
        namespace = context_namespace(options["kubeconfig"], options["context"]) if given else ""
        return edited_objects(cluster.others, given, read, namespace)

    def _note_unknown(self, scene: Scene) -> None:
        if scene.clock_note and scene.clock_note not in self._notes:
            self._notes.append(scene.clock_note)
        if scene.unknown_facts:
            names = ", ".join(f"`{name}`" for name in scene.unknown_facts)
            self._notes.append(f"no facts are known here from {names}")

    def _new_pods(self, cluster: Cluster) -> list[Pod]:
        """The pods of `-f`; others of their names are taken out of *cluster*."""
        options = self._options
        namespace = context_namespace(options["kubeconfig"], options["context"])
        given = [
            dataclasses.replace(one, manifest=_as_new(one.manifest, namespace))
            for path in options["filenames"]
            for one in read_objects(path)
        ]
        dry_run = DryRun(options["kubeconfig"], options["context"], cluster.known)
        added = Cluster(known=cluster.known, nodes=[*cluster.nodes], ask=dry_run.stored)
        take_given(added, given)
        for one in given:
            # A CronJob makes jobs, and these pods: one is looked at.
            if one.manifest.get("kind") == "CronJob" and (pod := pod_in(one.manifest)):
                with located(one, template_path(one.manifest)):
                    added.add(added.admitted(pod))
                added.objects += owners_of(one.manifest)
        if not added.pods:
            wanted = "want pods, or workloads with a pod template"
            raise InputError(f"{', '.join(map(str, options['filenames']))}: {wanted}, found none")
        cluster.objects += added.objects
        cluster.is_written |= added.is_written
        if dry_run.note:
            self._notes.append(dry_run.note)
        pods = [cluster.pod_of(one) for one in named(added.pods)]
        keys = {pod.key for pod in pods}
        there = [one for one in cluster.pods if _key(one) in keys]
        if there:
            names = ", ".join(f"`{_key(one)}`" for one in there[:3])
            self._notes.append(f"{names} exist(s); decided as if it did not")
            cluster.pods = [one for one in cluster.pods if _key(one) not in keys]
        return pods


def _require_profiles(decider: Decider, pods: list[Pod]) -> None:
    for pod in pods:
        if not decider.takes(pod):
            known = ", ".join(f"`{one.scheduler_name}`" for one in decider.bundle.profiles)
            raise KeyError(
                f"pod `{pod.key}` names the scheduler `{pod.scheduler_name}`; the policies have "
                f"{known}\nhint: another scheduler decides it, unless a profile has that name"
            )


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in {*before, *after} if before.get(name) != after.get(name)))


def _as_new(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """*manifest* as if it were to be created, in *namespace* if it names none."""
    given = manifest.get("metadata")
    if not isinstance(given, dict):
        return manifest
    left_out = ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
    metadata = {key: value for key, value in given.items() if key not in left_out}
    metadata.setdefault("namespace", namespace)
    return {
        **{key: value for key, value in manifest.items() if key != "status"},
        "metadata": metadata,
    }


def _uid(manifest: Mapping[str, Any]) -> str:
    return str((manifest.get("metadata") or {}).get("uid") or _key(manifest))


def _key(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata") or {}
    return f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"


def _shown(problem: Problem, files: PolicyFiles) -> Problem:
    return Problem(
        files.shown(problem.file), problem.line, problem.column, problem.message, problem.hint
    )
