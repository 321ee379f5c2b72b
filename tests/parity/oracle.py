"""The oracle as a child process: scenarios in, the same scenarios with answers out."""

from collections.abc import Iterable

from tests.json_lines import JsonLines
from tests.scripts import go_program


def oracle_of(minor: str | None) -> str:
    """The program with the plugins of a minor version; None: of the newest supported one."""
    return "oracle" if minor is None else f"oracle-{minor}"


class Oracle(JsonLines):
    """kube-scheduler's own plugins, started once and asked often.

    A scenario comes back with `answers`, or with `error` if it could not be answered; with
    `invalid` if an API server would refuse some of its objects.

    Args:
        gates: The feature gates that are on, of those that are off by default.
        minor: The minor version of Kubernetes, such as `1.38`; the newest supported one without it.
    """

    def __init__(self, gates: Iterable[str] = (), minor: str | None = None) -> None:
        said = ",".join(f"{gate}=true" for gate in gates)
        super().__init__([go_program(oracle_of(minor)), "-validate", f"-gates={said}"])
