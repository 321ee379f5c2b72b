"""TracingConfiguration: the file that Kubernetes components take with `--tracing-config-file`.

Owns its fields, defaults and rules. A file that works for kube-apiserver works here, unless its
endpoint is an abstract socket, or says which server resolves its name.
"""

import re
from dataclasses import dataclass
from typing import Final

from engine.policy.documents import Field, Object, did_you_mean, integer, read_documents
from engine.policy.errors import PolicyErrors, Problem

KIND: Final = "TracingConfiguration"
#: All versions have the same fields.
API_VERSIONS: Final = tuple(
    f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1")
)
DEFAULT_ENDPOINT: Final = "localhost:4317"
MILLION: Final = 1_000_000

_HOST_AND_PORT: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z._-]+):([0-9]{1,5})")
_SOCKET: Final = re.compile(r"unix:///[^\x00-\x20?#%]+")
_WANT_ENDPOINT: Final = "want `HOST:PORT`, `dns:///HOST:PORT` or `unix:///PATH`"
_HTTP: Final = "spans are sent by OTLP over gRPC, without TLS; a collector listens for it on 4317"


@dataclass(frozen=True, slots=True)
class TracingConfiguration:
    """Where spans are sent, and how many pods are traced.

    Attributes:
        endpoint: A collector that speaks OTLP over gRPC, without TLS.
        sampling_rate_per_million: How many pods of a million are traced. Those that are created
            as a part of a sampled trace are traced in any case.
    """

    endpoint: str = DEFAULT_ENDPOINT
    sampling_rate_per_million: int = 0


def decode_tracing_configuration(text: str, file: str = "") -> TracingConfiguration:
    """The TracingConfiguration in *text*. Raises `PolicyErrors` with all that is wrong."""
    documents, problems = read_documents(file, text)
    if not documents:
        raise PolicyErrors(problems or [Problem(file, 0, 0, f"want a `{KIND}`, found none")])
    decoded = [_configuration(document.object()) for document in documents]
    for other in documents[1:]:
        other.report.add(other.node, "", f"want one `{KIND}`, found another document")
    if documents[0].report.problems:
        raise PolicyErrors(documents[0].report.problems)
    return decoded[0]


def _configuration(members: Object) -> TracingConfiguration:
    _expect(members, "kind", (KIND,))
    _expect(members, "apiVersion", API_VERSIONS)
    endpoint = DEFAULT_ENDPOINT
    if found := members.get("endpoint"):
        endpoint = _endpoint(found) or endpoint
    rate = members.read("samplingRatePerMillion", integer(0, MILLION), 0)
    members.finish()
    return TracingConfiguration(endpoint, rate)


def _expect(members: Object, name: str, allowed: tuple[str, ...]) -> None:
    found = members.get(name)
    known = " or ".join(f"`{one}`" for one in allowed)
    if found is None:
        members.owner.wrong(f"{name}: want {known}, got none")
    elif (value := found.text()) not in allowed:
        found.wrong(f"want {known}, got {found.shown()}", did_you_mean(value, allowed))


def _endpoint(found: Field) -> str:
    """The address in *found* as gRPC takes it; "" after a report."""
    value = found.text()
    if not value:
        return ""  # counts as not given, as it does for kube-apiserver; or it is reported
    target = value.removeprefix("dns:///")
    address = _HOST_AND_PORT.fullmatch(target)
    if address is not None and 0 < int(address[1]) < 1 << 16:
        return target
    if _SOCKET.fullmatch(value):
        return value
    found.wrong(
        f"{_WANT_ENDPOINT}, got {found.shown()}",
        _HTTP if value.startswith(("http://", "https://")) else "",
    )
    return ""
