"""What all tests share: the real control plane, and how long property tests search.

`control_plane` is one pair of servers for the whole run: share it, and stay inside a namespace and
node names of your own. `own_control_plane` is for a test that breaks its servers.

Property tests try the same few cases each time, in the profile `check`, more of the same in
`thorough` (`tests/searching.py`), and many random ones by night, with `HYPOTHESIS_PROFILE=nightly`.
The header of that run names its seed, and `HYPOTHESIS_SEED=n` repeats it.
"""

import gc
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import hypothesis.core
import pytest
import structlog
from hypothesis import HealthCheck, settings

from engine.io.kube.client import ApiClient
from tests import parallel, searching
from tests.controlplane import ControlPlane, as_numbers, kubernetes_minor

settings.register_profile(
    "thorough",
    derandomize=True,
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "check", settings.get_profile("thorough"), max_examples=searching.examples(100)
)
settings.register_profile(
    "nightly", settings.get_profile("thorough"), derandomize=False, max_examples=3000
)
# Before any test is collected: a test keeps the profile in force when its module is imported.
settings.load_profile(searching.PROFILE)
if not settings.get_profile(searching.PROFILE).derandomize:
    # In the environment, for the workers of this run.
    seed = os.environ.setdefault("HYPOTHESIS_SEED", str(secrets.randbelow(2**32)))
    hypothesis.core.global_force_seed = int(seed)  # type: ignore[assignment]  # None until set


def pytest_report_header() -> str | None:
    seed = os.environ.get("HYPOTHESIS_SEED")
    return f"property tests: HYPOTHESIS_SEED={seed}" if seed is not None else None


def pytest_configure(config: pytest.Config) -> None:
    # As a shell without job control starts what runs beside it, and `nohup` everything. Programs
    # inherit that, and tests press Ctrl-C and hang up.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parallel.pytest_configure(config)


def pytest_xdist_auto_num_workers() -> int:
    return parallel.number_of_workers()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Left out, not skipped: nothing is missing from a run on an older control plane.
    left_out = {item for item in items if not _is_for_this_run(item)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def _is_for_this_run(item: pytest.Item) -> bool:
    if item.get_closest_marker("several_minors") and "KUBERNETES" not in os.environ:
        return False
    needs = item.get_closest_marker("kubernetes")
    return needs is None or as_numbers(needs.args[0]) <= as_numbers(kubernetes_minor())


def pytest_collection_finish() -> None:
    # Thousands of collected tests stay to the end. A garbage collection that looks through them
    # each time costs a fifth of the CPU time of quick tests.
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_width_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed does not depend on where the tests run: readline sets it for processes."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _logging_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test sets up for logging ends with it.

    A logger that keeps its first configuration would write past every later `capture_logs`.
    """
    real = structlog.configure

    def configure(**settings: Any) -> None:
        real(**{**settings, "cache_logger_on_first_use": False})

    monkeypatch.setattr(structlog, "configure", configure)
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def gates_reported_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gate that holds a pod back is reported after a tenth of a second, not after five."""
    monkeypatch.setattr("engine.app.carrying.GATE_REPORT_DELAY", 0.1)


@pytest.fixture
def no_sandboxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers of `tests/engine/app/harness.py` evaluate policies in this process."""
    from tests.engine.app import harness  # most tests need none of it

    monkeypatch.setattr(harness, "make_stages", harness.stages_in_process)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real kube-apiserver and etcd, shared by the run. Do not break it."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def own_control_plane() -> Iterator[ControlPlane]:
    """A real kube-apiserver and etcd for one test, to kill, pause, restart and compact."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    """A client of `control_plane` in `system:masters`."""
    async with control_plane.client() as client:
        yield client


@pytest.fixture
def namespace(control_plane: ControlPlane) -> str:
    """The name of a fresh namespace of `control_plane`."""
    name = f"test-{secrets.token_hex(4)}"
    control_plane.create_if_missing(
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
    )
    return name
