"""Manifests, snapshots and tables of events, as `simulate` and the other commands read them."""

import zlib
from pathlib import Path
from typing import Final

from engine.files.cluster_file import ClusterFileError, read_cluster, redact, snapshot_bytes
from engine.files.world import ManifestError
from tests.fuzzing.targets.scratch import file_of
from tests.profiles import default_bundle, default_evaluator
from workbench.simulation.simulation import Simulation
from workbench.simulation.simulation_report import Recorder, report
from workbench.simulation.workload import WorkloadError, read_workload

#: One input of so many is simulated, which takes longer than to read it.
_SIMULATED_OF: Final = 8
_MOST_PODS: Final = 50


def run(data: bytes) -> None:
    """Read a cluster, look at every pod of it, and simulate some."""
    name = "input.jsonl" if data.startswith(b'{"at"') else "input.yaml"
    path = file_of(data, name)
    try:
        cluster = read_cluster(path)
        for manifest in cluster.pods[:_MOST_PODS]:
            cluster.pod_of(manifest)
        cluster.world()
        redacted = [*cluster.nodes, *cluster.pods]
        for manifest in redacted:
            redact(manifest)
        snapshot_bytes(redacted, "", {}, compress=False)
    except (ClusterFileError, ManifestError) as error:
        str(error)
    if zlib.crc32(data) % _SIMULATED_OF == 0 or name == "input.jsonl":
        _simulate(path)


def _simulate(path: Path) -> None:
    bundle = default_bundle()
    try:
        workload = read_workload(path)
        if len(workload.arrivals) > _MOST_PODS:
            return
        recorder = Recorder()
        simulation = Simulation(bundle, default_evaluator(), workload, on_moment=recorder)
        simulation.run()
    except (ClusterFileError, ManifestError, WorkloadError) as error:
        str(error)
        return
    report(simulation, recorder.steps).to_plain()
