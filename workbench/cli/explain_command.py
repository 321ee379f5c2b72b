"""`starsched explain`: why a pod is placed on a node, or on none."""

from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from click.core import ParameterSource

from engine.core.manifests.field_errors import Steps
from engine.files.cluster_file import Cluster, named, read_objects
from engine.files.given_objects import located, require_types
from engine.files.policy_files import PolicyFiles
from engine.files.templates import owners_of, planned_claims, reference_to, template_of, workload_of
from engine.io.informers import queue_sources
from engine.io.kube.errors import KubeConfigError
from engine.policy.bundle import Bundle
from engine.policy.evaluator import InProcessEvaluator
from engine.surfaces.cli.cluster_option import cluster_options
from engine.surfaces.cli.emulated_version import emulated_version_option
from engine.surfaces.cli.input_error import InputError, input_errors
from engine.surfaces.cli.json_output import output_option, print_json
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX
from engine.surfaces.cli.terminal import wide_option
from engine.surfaces.cli.working import working
from engine.surfaces.live.answers import PodAnswer
from engine.telemetry.logs import configure_logging
from workbench.cli.cluster_reading import INSTEAD_OF_A_CLUSTER, now_text, read_given
from workbench.cli.dry_run import DryRun, api_errors
from workbench.cli.explain_exit import exit_code
from workbench.cli.explain_on_a_copy import explain_on_a_copy
from workbench.cli.explain_text import print_answer
from workbench.cli.fact_reading import FactsAt, read_facts
from workbench.cli.file_notes import admission_note, report_missing, report_repeated
from workbench.cli.input_path import InputPath
from workbench.cli.leader_access import (
    Refused,
    ask_leader,
    cannot_ask,
    leader_at,
    leader_options,
    namespace_of,
    say_why_a_copy,
)
from workbench.cli.policies_in_force import (
    CannotPlan,
    PolicyMap,
    bundle_in_force,
    configmap_option,
    read_in_force,
)
from workbench.cli.policy_option import BUILTIN, known_profile, policy_options, read_bundle
from workbench.leader_way import CannotAsk
from workbench.plan.plan_index import NONE


@click.command("explain", short_help="Say why a pod goes where it goes, or nowhere.")
@click.argument("pod", required=False)
@click.option(
    "-f",
    "--filename",
    type=InputPath(dir_okay=False),
    help="Manifest of a pod that need not exist, or of something with a pod template; with POD, "
    "the one of that name in it.",
)
@click.option(
    "--snapshot",
    type=InputPath(),
    multiple=True,
    metavar="PATH",
    help="A snapshot, a list of kubectl, manifests or a directory of them, in place of a live "
    "cluster. Can be given several times.",
)
@cluster_options
@leader_options
@click.option(
    "--copy",
    "wants_copy",
    is_flag=True,
    help="Explain on a copy of the cluster, by the policies given or else those in force, without "
    "asking the scheduler.",
)
@policy_options
@configmap_option
@click.option(
    "--profile", metavar="NAME", help="Decide as this `schedulerName`. Default: what the pod says."
)
@click.option(
    "--node", "nodes", multiple=True, metavar="NODE", help="Report everything about this node."
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How many feasible nodes to show.",
)
@emulated_version_option("that of the cluster")
@wide_option
@output_option("How to print it.")
def explain_command(pod: str | None, filename: Path | None, **options: Any) -> None:
    """Explain what policies decide about POD (`namespace/name`, or `name` if there is only one).

    Evaluates every policy on every node: which policy rejects which nodes, and at which line, how
    the feasible ones score, and what made the difference. For a pod that fits nowhere:
    which pods it would evict, what would make it fit, and what the queue waits for. A pod that is
    placed is explained as if it were not. Nothing is changed: it only lists.

    On a live cluster the scheduler that leads is asked, which knows what it tried and why; if it
    cannot be asked, a copy of the cluster is explained by the policies in force, which are read
    from their ConfigMap; or by policies that are given. The first line says which were used.

    A manifest with -f is read as the API server would store it. A live one is asked, by a dry run,
    if you may create pods there; else defaults and admission are applied here, and a note says so.

    Exit codes: 0 placed, 3 unschedulable, 1 a policy or the cluster failed, 2 wrong usage, or there
    is no such pod, or policies or files cannot be used, or which are in force cannot be read.

    \b
    Examples:
      starsched explain web/frontend-7d9c --node node-3
      starsched explain frontend-7d9c --snapshot cluster.json.gz --policies ./policies
      starsched explain -f pod.yaml --policies ./policies --config profile.yaml
      starsched explain web/frontend-7d9c --output json | jq .remedies
      kubectl create deployment web --image web --dry-run=client -o yaml | starsched explain -f -
    """
    if pod is None and filename is None:
        raise click.UsageError("want POD, or a manifest with -f")
    configure_logging(verbosity=-1, log_format="text")
    if pod is not None and _is_about_the_live(filename, options):
        with working("asking the scheduler"):
            answer = _of_leader(pod, options)
        if answer is not None:
            _print(answer, options)
            raise SystemExit(exit_code(answer))
    used = _policies(options)
    bundle = used.bundle
    known_profile(bundle, options["profile"])
    cluster = read_given(
        options["snapshot"],
        options["kubeconfig"],
        options["context"],
        options["emulated_version"],
        queue_sources(bundle),
    )
    report_repeated(cluster)
    dry_run = DryRun(options["kubeconfig"], options["context"], cluster.known)
    if not options["snapshot"]:
        cluster.ask = dry_run.stored
        where = FactsAt(options["kubeconfig"], options["context"], used.config_map)
        cluster.facts, unread = read_facts(bundle.runtime.facts, where)
        cluster.missing.update(unread)
        cluster.taken_at = now_text()
    given = (*options["snapshot"], *([filename] if filename is not None else []))
    try:
        with input_errors(given), api_errors():
            found = _find(cluster, pod, filename)
            with working("explaining"):
                result = _explain(bundle, cluster, found, options)
    except KeyError as error:
        raise InputError(str(error.args[0])) from error
    notes = (*used.notes, *result.notes, dry_run.note, admission_note(cluster))
    result = msgspec.structs.replace(
        _with_paths(result, used.files),
        revision=used.revision,
        policies_from=used.source,
        notes=tuple(filter(None, notes)),
        not_applied=cluster.not_applied,
    )
    _print(result, options)
    report_missing(cluster)
    raise SystemExit(exit_code(result))


def _is_about_the_live(filename: Path | None, options: dict[str, Any]) -> bool:
    """True if nothing asks for another cluster, or for other policies, than the scheduler's."""
    others = ("snapshot", "config", "profile", "wants_copy", "emulated_version")
    return filename is None and not any(options[name] for name in others) and not _gives_policies()


def _gives_policies() -> bool:
    """True if the policies are named, be it `builtin`."""
    given = click.get_current_context().get_parameter_source("policies")
    return given is not ParameterSource.DEFAULT


class _Policies(NamedTuple):
    """What decides, and where it comes from; *config_map* if it is the one in force."""

    bundle: Bundle
    files: PolicyFiles
    revision: str
    source: str
    config_map: str = ""
    notes: tuple[str, ...] = ()


def _policies(options: dict[str, Any]) -> _Policies:
    """The policies that are given; without any, for a live cluster, those in force there."""
    if options["snapshot"] or _gives_policies():
        bundle, files = read_bundle(options["policies"], options["config"])
        given = options["policies"]
        return _Policies(
            bundle, files, bundle.revision, "built-in" if given == BUILTIN else str(given)
        )
    where: PolicyMap = options["policy_map"]
    try:
        base = read_in_force(where, options["kubeconfig"], options["context"], INSTEAD_OF_A_CLUSTER)
    except CannotPlan as error:
        raise CannotPlan(f"{error.message}\nhint: --policies names others to explain by") from error
    found = bundle_in_force(base, where, options["config"])
    source = f"in force by ConfigMap `{where}`"
    if not base.files:
        is_missing = base.resource_version == NONE
        source = f"built-in: there is no ConfigMap `{where}`" if is_missing else "built-in"
    return _Policies(
        found.bundle,
        found.files,
        found.revision,
        source,
        f"{CONFIGMAP_PREFIX}{where}",
        found.notes,
    )


def _of_leader(pod: str, options: dict[str, Any]) -> PodAnswer | None:
    """The leader's answer; None, with a note, if it gives none. It is about a pod by its name."""
    query = {"node": ",".join(options["nodes"])} if options["nodes"] else {}
    where = leader_at(options)
    try:
        key = pod if "/" in pod else f"{namespace_of(where, pod)}/{pod}"
        return ask_leader(where, f"/explain/{key}", query, PodAnswer)
    except KubeConfigError:
        return None  # reported when the copy is read
    except Refused as refused:
        if options["server"]:
            raise InputError(f"{refused}\nhint: {refused.refusal.hint}") from refused
        say_why_a_copy(refused)
    except CannotAsk as error:
        if options["server"]:
            raise cannot_ask(error) from error
        say_why_a_copy(error)
    return None


def _print(answer: PodAnswer, options: dict[str, Any]) -> None:
    if options["output"] == "json":
        print_json(msgspec.to_builtins(answer))
    else:
        print_answer(answer, options["top"])


def _find(cluster: Cluster, name: str | None, filename: Path | None) -> dict[str, Any]:
    """The manifest of the pod. Raises `KeyError` with a message."""
    if filename is None:
        assert name is not None
        return cluster.find_pod(name)
    given = read_objects(filename)
    require_types(given)
    for one in given:
        cluster.known.add(one.manifest)
    pods = []
    for one in given:
        pod = pod_in(one.manifest)
        with located(one, template_path(one.manifest)):
            if pod is None:
                cluster.add(cluster.admitted(one.manifest))
            else:
                pods.append(cluster.admitted(pod))
                # What its workload is, and how many replicas that has.
                cluster.objects += workload_of(one.manifest)
    for pod in named(pods):
        for claim in planned_claims(pod, cluster.known):
            cluster.add(cluster.admitted(claim))
    if name is not None:
        return Cluster(pods=pods).find_pod(name)
    if len(pods) != 1:
        names = ", ".join(f"`{(p.get('metadata') or {}).get('name')}`" for p in pods)
        others = ", ".join(sorted({str(one.manifest.get("kind")) for one in given}))
        got = names or (f"none, but {others}" if others else "none: it is empty")
        raise KeyError(f"{filename}: want one pod, or its name as POD; got {got}")
    return pods[0]


def template_path(manifest: dict[str, Any]) -> Steps:
    """Where the template of the pods of *manifest* is; empty if it is a pod itself."""
    spec = manifest.get("spec")
    if not isinstance(spec, dict):
        return ()
    if isinstance(spec.get("jobTemplate"), dict):
        return ("spec", "jobTemplate", "spec", "template")
    return ("spec", "template") if isinstance(spec.get("template"), dict) else ()


def pod_in(document: dict[str, Any]) -> dict[str, Any] | None:
    """The pod that *document* is, or that it would make: the template of a workload."""
    if document.get("kind", "Pod") == "Pod":
        return document
    owner = [document, *owners_of(document)][-1]
    made = template_of(owner if document["kind"] == "CronJob" else document)
    if made is None:
        return None
    metadata = document.get("metadata") or {}
    of_workload = ("name", "generateName", "namespace")
    kept = {name: metadata[name] for name in of_workload if name in metadata}
    kept["ownerReferences"] = [reference_to(owner)]
    return {**made, "metadata": {**made["metadata"], **kept}}


def _explain(
    bundle: Bundle, cluster: Cluster, manifest: dict[str, Any], options: dict[str, Any]
) -> PodAnswer:
    if options["profile"]:
        spec = {**(manifest.get("spec") or {}), "schedulerName": options["profile"]}
        manifest = {**manifest, "spec": spec}
    placed_on = str((manifest.get("spec") or {}).get("nodeName") or "")
    # A pending pod goes to its nominated node; a placed one is explained as if it were new.
    pod = cluster.pod_of(manifest, unplaced=bool(placed_on))
    profiles = [profile.scheduler_name for profile in bundle.profiles]
    if pod.scheduler_name not in profiles:
        known = ", ".join(f"`{name}`" for name in profiles)
        raise KeyError(
            f"pod `{pod.key}` names the scheduler `{pod.scheduler_name}`; the policies have {known}"
            "\nhint: --profile NAME decides as that one"
        )
    world = cluster.world(without=pod)
    world.cache.set_pod_type_labels(bundle.runtime.facts.pod_type_labels)
    shown = cluster.show_facts(world.cache, bundle.runtime.facts, [pod])
    world.snapshot = world.cache.snapshot()
    for name in options["nodes"]:
        if name not in world.snapshot.slot_of:
            raise KeyError(f"no node `{name}` among {world.snapshot.node_count} nodes")
    pending = [cluster.pod_of(one, unplaced=False) for one in cluster.pending_pods()]
    evaluator = InProcessEvaluator(bundle.program)
    try:
        answer = explain_on_a_copy(
            bundle,
            evaluator,
            world,
            pod,
            placed_on=placed_on,
            asked=options["nodes"],
            pending=pending,
            unknown_facts=shown.unknown,
            queue_objects=cluster.others,
        )
        clock = filter(None, [shown.clock_note(bundle)])
        return msgspec.structs.replace(answer, notes=(*answer.notes, *clock))
    finally:
        evaluator.close()


def _with_paths(result: PodAnswer, files: PolicyFiles) -> PodAnswer:
    """*result* with the user's files as paths that can be opened."""

    def shown(source: str) -> str:
        module, colon, line = source.rpartition(":")
        return files.shown(module) + colon + line

    replace = msgspec.structs.replace
    return replace(
        result,
        policies=tuple(
            replace(
                policy,
                groups=tuple(replace(group, source=shown(group.source)) for group in policy.groups),
            )
            for policy in result.policies
        ),
    )
