"""A scheduler in this process, on an embedded API server; and what tests ask of both."""

import asyncio
import contextlib
import dataclasses
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from devkit.cluster import DevCluster
from engine.app import App, PolicyParts, Settings
from engine.io.facts.learned import LearnedStore
from engine.io.kube.client import ApiClient
from engine.io.kube.config import Endpoint
from engine.io.tracing.pod_traces import Tracing
from engine.lib.clock import Clock
from engine.policy.bundle import Bundle
from engine.policy.errors import Problem
from engine.policy.evaluator import Evaluator, InProcessEvaluator
from engine.recording.recorder import Recorder
from engine.rollout import assembly
from engine.rollout.control import SUFFIX, ConfigMapControl, NoControl, RolloutControl
from engine.rollout.last_good import NoStore, Store
from engine.rollout.sources import BuiltinSource, ConfigMapSource, PolicySource
from engine.rollout.trial import CandidateStages
from engine.testing.process import run_tests_confined
from engine.testing.runner import failed

NAMESPACE = "starsched"
NAME = "policies"

#: Makes the stages of a scheduler that is given none; the fixture `no_sandboxes` changes it.
make_stages: Callable[..., CandidateStages] = assembly.make_stages


def namespace() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}


def config_map(files: Mapping[str, str]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": dict(files),
    }


def edit(cluster: DevCluster, files: Mapping[str, str]) -> None:
    """Change the ConfigMap of policies, or create it."""
    found = cluster.get("configmaps", NAME, NAMESPACE)
    if found is None:
        cluster.create(config_map(files))
    else:
        cluster.update("configmaps", {**found, "data": dict(files)})


def stages_in_process(config_text: str | None = None) -> CandidateStages:
    """The stages of `make_stages`, but policies are evaluated in this process."""
    return in_process(assembly.make_stages(config_text), config_text)


def in_process(usual: CandidateStages, config_text: str | None = None) -> CandidateStages:
    """The stages *usual*, but policies are evaluated in this process.

    For tests of what goes on around policies: a sandbox takes as long to start as all the rest.
    """

    def make_evaluator(bundle: Bundle) -> Evaluator:
        return InProcessEvaluator(bundle.program)

    def run_tests(files: Mapping[str, str]) -> list[Problem]:
        return failed(run_tests_confined(files, config_text))

    return CandidateStages(
        build=usual.make_bundle,
        make_evaluator=make_evaluator,
        run_tests=run_tests,
        on_close=usual.close,
        require_usable=usual.require_usable,
    )


@contextlib.asynccontextmanager
async def scheduler(cluster: DevCluster, **words: Any) -> AsyncIterator[App]:
    """A scheduler in *cluster*; the words are those of `scheduler_at`."""
    async with scheduler_at(Endpoint(server=cluster.url), **words) as app:
        yield app


@contextlib.asynccontextmanager
async def scheduler_at(
    endpoint: Endpoint,
    *,
    from_config_map: bool = False,
    store: Callable[[ApiClient], Store] | None = None,
    learned_store: Callable[[ApiClient], LearnedStore] | None = None,
    stages: CandidateStages | None = None,
    decision_log: Recorder | None = None,
    tracing: Tracing | None = None,
    clock: Clock | None = None,
    wait: bool = True,
    **settings: Any,
) -> AsyncIterator[App]:
    """A scheduler that runs until the block ends; with *wait*, it schedules already."""
    async with ApiClient(endpoint) as client:
        source: PolicySource = BuiltinSource()
        control: RolloutControl = NoControl()
        if from_config_map:
            source = ConfigMapSource(client, NAMESPACE, NAME)
            control = ConfigMapControl(client, NAMESPACE, NAME + SUFFIX)
        app = App(
            client,
            policies=PolicyParts(
                source=source,
                stages=stages or make_stages(),
                store=store(client) if store is not None else NoStore(),
                control=control,
            ),
            learned_store=learned_store(client) if learned_store is not None else None,
            settings=dataclasses.replace(Settings(), **settings),
            decision_log=decision_log,
            tracing=tracing,
            clock=clock,
        )
        running = asyncio.ensure_future(app.run())
        try:
            if wait:
                leading = asyncio.ensure_future(app.leadership.leading.wait())
                await asyncio.wait(
                    {running, leading}, timeout=30, return_when=asyncio.FIRST_COMPLETED
                )
                leading.cancel()
                if running.done():
                    running.result()
                assert app.leadership.leading.is_set(), "the scheduler did not start"
            yield app
        finally:
            if running.done() and not running.cancelled() and (error := running.exception()):
                traceback.print_exception(error)  # it may be why the test waits in vain
            app.request_stop()
            await asyncio.gather(running, return_exceptions=True)
            app.cache.check_invariants()
            app.kernel.queue.check_invariants()


def node_of(cluster: DevCluster, name: str, namespace: str = "default") -> str:
    """Where a pod is; "" while it is pending or gone."""
    pod = cluster.get("pods", name, namespace)
    return str(pod["spec"].get("nodeName", "")) if pod is not None else ""


def placements(cluster: DevCluster) -> dict[str, str]:
    """Placed pods and their nodes."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in cluster.list("pods")
        if pod["spec"].get("nodeName")
    }


def events(cluster: DevCluster, reason: str) -> list[dict[str, Any]]:
    """Events of a reason, in the words of events.k8s.io (they are stored in those of core/v1)."""
    return [
        event
        | {
            "note": event.get("message", ""),
            "reportingController": event.get("reportingComponent", ""),
            "regarding": event.get("involvedObject", {}),
        }
        for event in cluster.list("events")
        if event.get("reason") == reason
    ]


def condition(cluster: DevCluster, name: str) -> dict[str, Any]:
    """The PodScheduled condition of a pod; empty if there is none."""
    pod = cluster.get("pods", name)
    conditions = (pod or {}).get("status", {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


def metric(app: App, name: str, **labels: str) -> float:
    return app.env.registry.get_sample_value(name, labels) or 0.0
