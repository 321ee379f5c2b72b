"""Reading the facts of a live cluster once: the current values of the sources of some policies.

Owns the requests. Only sources that the policies name are read, and only the ConfigMaps with facts
or learned values for them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import click

from engine.core.model.objects import ConfigMap, decode
from engine.files.policy_files import PolicyFilesError, read_bundle_files
from engine.io.facts.assembly import FactSources
from engine.io.facts.collection import FactsDocument, collect
from engine.io.kube.errors import ApiError, KubeConfigError
from engine.io.kube.resources import CONFIG_MAPS, Resource, resource_of
from engine.lib import event_loop
from engine.lib.clock import SystemClock
from engine.policy.config import decode_documents
from engine.policy.fact_config import AnnotationFacts, FactsConfig
from engine.surfaces.cli.cluster_option import connect
from engine.surfaces.cli.input_error import InputError
from engine.surfaces.cli.policy_paths import CONFIGMAP_PREFIX
from engine.surfaces.cli.serving import choose_learned_store, choose_source


@dataclass(frozen=True)
class FactsAt:
    """Where facts are read: a cluster, and where a scheduler saves what it learned.

    Attributes:
        kubeconfig, context: Which cluster.
        policies: The source of the policies, as `run` takes it.
        state_dir: The directory in which a scheduler saves what it learned, if any.
    """

    kubeconfig: Path | None
    context: str | None
    policies: str = ""
    state_dir: Path | None = None


def read_facts(config: FactsConfig, at: FactsAt) -> tuple[list[FactsDocument], dict[str, str]]:
    """The facts of the sources of *config*, and why some could not be read.

    Raises `click.UsageError` for a kubeconfig that cannot be used.
    """
    if all(isinstance(source, AnnotationFacts) for source in config.sources):
        return [], {}
    try:
        return event_loop.run(_read(config, at))
    except KubeConfigError as error:
        raise click.UsageError(str(error)) from error


async def _read(config: FactsConfig, at: FactsAt) -> tuple[list[FactsDocument], dict[str, str]]:
    async with await connect(at.kubeconfig, at.context) as client:
        learned_store = choose_learned_store(at.policies, client, at.state_dir)
        sources = FactSources(client, SystemClock(), learned_store, may_save=lambda: False)
        return await collect(config, sources.make)


class PolicyReads(NamedTuple):
    """What policies read of a cluster beside the kinds that all do: facts, and their queues."""

    facts: FactsConfig
    queues: tuple[Resource, ...]


def policy_reads(at: FactsAt) -> PolicyReads:
    """What the policies at `at.policies` read.

    Raises `InputError` for policies that cannot be found or whose documents are wrong,
    `click.ClickException` if the cluster does not return them.
    """
    if at.policies.startswith(CONFIGMAP_PREFIX):
        try:
            texts = event_loop.run(_config_map(at))
        except KubeConfigError as error:
            raise click.UsageError(str(error)) from error
        except ApiError as error:
            raise click.ClickException(f"{at.policies}: {error}") from error
    else:
        try:
            texts = dict(read_bundle_files(Path(at.policies)).texts)
        except PolicyFilesError as error:
            raise InputError(str(error)) from error
    decoded = decode_documents({n: t for n, t in texts.items() if not n.endswith(".star")})
    if decoded.problems:
        raise InputError("\n".join(str(problem) for problem in decoded.problems))
    objects = () if decoded.queue_tree is None else decoded.queue_tree.objects
    queues = tuple(resource_of(one.api_version, one.kind) for one in objects)
    return PolicyReads(decoded.runtime.facts, queues)


async def _config_map(at: FactsAt) -> dict[str, str]:
    async with await connect(at.kubeconfig, at.context) as client:
        choose_source(at.policies, client, None)  # reports what is wrong with the form of the name
        namespace, _, name = at.policies.removeprefix(CONFIGMAP_PREFIX).partition("/")
        raw = await client.get(CONFIG_MAPS, name, namespace)
        return dict(decode(ConfigMap, raw).data)
