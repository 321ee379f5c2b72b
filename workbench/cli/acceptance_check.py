"""`starsched check --never-rejects-everything`: pods of a snapshot that no node accepts."""

from collections.abc import Sequence
from pathlib import Path

from engine.comparing.population import PolicySet
from engine.files.policy_files import PolicyFiles
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.sandbox.process import SandboxEvaluator
from engine.surfaces.cli.input_error import InputError, input_errors
from engine.surfaces.cli.progress_bar import progress_bar
from workbench.cli.compare_command import document_yaml
from workbench.cli.file_notes import report_workload
from workbench.comparing.acceptance import RejectedPods, rejected_pods
from workbench.comparing.population import Population
from workbench.simulation.workload import read_workload


def population_of(inputs: Sequence[Path]) -> Population:
    """The pods and nodes of *inputs*. Raises `InputError`, also if there are none of these."""
    with input_errors(inputs):
        workload = read_workload(*inputs)
        population = workload.population()
    report_workload(workload)
    nodes = len(population.cluster.nodes)
    if not nodes or not population.pods:
        named = ", ".join(map(str, inputs))
        raise InputError(f"{named}: want nodes and pods, got {nodes} and {len(population.pods)}")
    return population


def rejected_by(
    bundle: Bundle, population: Population, inputs: Sequence[Path]
) -> list[RejectedPods]:
    """The classes of pods that no node accepts; policies run in the sandbox."""
    evaluator = SandboxEvaluator(bundle.program)
    with input_errors(inputs), PolicySet(bundle, evaluator) as asked, progress_bar() as bar:
        task = bar.add_task("classes of pods", total=None)
        return rejected_pods(
            asked,
            population,
            lambda done, total: bar.update(task, completed=done, total=total),
        )


def as_problem(found: RejectedPods, files: PolicyFiles) -> Problem:
    """What is wrong, at the place of the first policy that is to blame."""
    first = next((one for one in found.by if not one.is_builtin), found.by[0])
    module, _, line = first.source.partition(":")
    pods = f"{found.count} pod(s) such as `{found.of}`"
    if first.nodes == found.nodes:
        message = f"`{first.policy}` rejects every node for {pods}: {first.reason}"
    else:
        parts = ", ".join(f"`{one.policy}` {one.nodes} ({one.reason})" for one in found.by)
        message = f"no node is left for {pods}: of {found.nodes} nodes, {parts}"
    severity = "warning" if found.is_hopeless else "error"
    return Problem(files.shown(module), int(line or 0), 0, message, "", severity)


def as_document(found: RejectedPods) -> str:
    """The pod as a document of YAML, with a comment."""
    by = ", ".join(one.policy for one in found.by)
    comment = f"# rejected by every node [{by}], made from pod {found.of}\n"
    return comment + document_yaml(("Pod", found.pod))
