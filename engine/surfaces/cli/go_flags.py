"""Flags as Go programs take them, and kube-scheduler's flags that have no meaning here.

Owns the differences in writing: `--leader-elect=false`, `-v=2`, `--log_flush_frequency 5s`.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click
import structlog
from click.core import ParameterSource

from engine.core.framework.behaviors import GATES, Behaviors

log = structlog.get_logger(component="run")

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_UNUSED: Final = "starsched.unused_flags"
#: The user and the password that a URL may hold.
_PASSWORD: Final = re.compile(r"//[^/\s]*@")


@dataclass(frozen=True, slots=True)
class UnusedFlag:
    """A flag of kube-scheduler that is taken and changes nothing, and why it does not."""

    why: str
    is_switch: bool = False
    #: True if with this value something stays on that was to be off.
    stays_on: Callable[[str], bool] = lambda _value: False


_PROFILER: Final = "this process has no Go profiler"
_HTTP2: Final = "the endpoints speak HTTP/1.1"
_CLIENT: Final = "requests are not slowed down here; the API server's priority and fairness does it"
_GATES: Final = "what of kube-scheduler is built in is listed in docs/compatibility.md"
_LOGS: Final = "the log is one stream of lines, written at once"
_LABELS: Final = "the labels of metrics have few values"

#: kube-scheduler's flags without effect. docs/operations.md lists them.
UNUSED: Final[dict[str, UnusedFlag]] = {
    "contention-profiling": UnusedFlag(_PROFILER, is_switch=True),
    "profiling": UnusedFlag(_PROFILER, is_switch=True),
    "disable-http2-serving": UnusedFlag(_HTTP2, is_switch=True),
    "http2-max-streams-per-connection": UnusedFlag(_HTTP2),
    "permit-address-sharing": UnusedFlag("addresses are shared in any case", is_switch=True),
    "tls-curve-preferences": UnusedFlag("OpenSSL chooses the curve"),
    "kube-api-burst": UnusedFlag(_CLIENT),
    "kube-api-qps": UnusedFlag(_CLIENT),
    "kube-api-content-type": UnusedFlag("the API server is asked in JSON"),
    "min-compatibility-version": UnusedFlag(_GATES),
    "allow-metric-labels": UnusedFlag(_LABELS),
    "allow-metric-labels-manifest": UnusedFlag(_LABELS),
    "disabled-metrics": UnusedFlag("no metric can be switched off", stays_on=bool),
    "show-hidden-metrics-for-version": UnusedFlag("no metric is hidden"),
    "log-flush-frequency": UnusedFlag(_LOGS),
    "log-json-info-buffer-size": UnusedFlag(_LOGS),
    "log-json-split-stream": UnusedFlag(_LOGS, is_switch=True),
    "log-text-info-buffer-size": UnusedFlag(_LOGS),
    "log-text-split-stream": UnusedFlag(_LOGS, is_switch=True),
    "vmodule": UnusedFlag("use `-v` for the whole process"),
}


#: kube-scheduler's gate for trying pods early that back off, while no other pod is to be tried.
POP_EARLY: Final = "SchedulerPopFromBackoffQ"

#: The gates that kube-scheduler 1.37 takes and 1.38 does not know: those of kube-scheduler, and of
#: other components, which it takes as well.
GONE: Final = frozenset(
    """
    AggregatedDiscoveryRemoveBetaType AllowOverwriteTerminationGracePeriodSeconds
    CRDValidationRatcheting CustomResourceFieldSelectors DisableAllocatorDualWrite
    DynamicResourceAllocation ExecProbeTimeout InPlacePodVerticalScaling JobManagedBy KubeletTracing
    MatchLabelKeysInPodAffinity MultiCIDRServiceAllocator NFTablesProxyMode NodeSwap
    PodGroupPreemptionPolicy PodSchedulingReadiness PreferSameTrafficDistribution
    RecoverVolumeExpansionFailure SeparateTaintEvictionController ServiceAccountTokenJTI
    ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
    ServiceAccountTokenPodNodeInfo SupplementalGroupsPolicy SystemdWatchdog WinDSR WinOverlay
    WindowsHostNetwork
    """.split()  # noqa: SIM905  # a literal would be a line for each
)


class FeatureGates(click.ParamType[dict[str, bool]]):
    """`A=true,B=false`, as kube-scheduler takes its gates."""

    name = "gates"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The gates by name."""
        gates = {}
        for part in filter(None, map(str.strip, str(value).split(","))):
            name, _, said = (word.strip() for word in part.partition("="))
            if not name or said not in _TRUE | _FALSE:
                self.fail(f"want `NAME=true` or `NAME=false`, got `{part}`", param, ctx)
            gates[name] = said in _TRUE
        return gates


def chosen_gates(given: Sequence[dict[str, bool]]) -> dict[str, bool]:
    """The gates of all flags; the last one of a name counts."""
    return {name: value for gates in given for name, value in gates.items()}


def log_gates(gates: Mapping[str, bool], emulated: Behaviors | None = None) -> None:
    """Say once for each gate without effect why it has none; louder for one that is to be off.

    *emulated* is what the flags say is answered like, if they do. Raises `UsageError` if that is a
    kube-scheduler that does not start with one of *gates*.
    """
    for name, value in gates.items():
        if name in GONE:
            if emulated is not None and emulated.removed_gates_refused:
                raise click.UsageError(f"unrecognized feature gate: {name}")
            reason = "kube-scheduler has built it in, and does not start with it from 1.38 on"
            log.warning("Feature gate is gone", gate=name, value=value, reason=reason)
        elif name != POP_EARLY and name not in GATES:
            say = log.info if value else log.warning
            say("Feature gate has no effect", gate=name, value=value, reason=_GATES)


class GoFlagsCommand(click.Command):
    """A command whose flags can be written as for a Go program, with those of kube-scheduler."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse *args*; flags without effect are put aside for `unused_flags`."""
        unused: dict[str, str] = {}
        switches = {
            name: (option.opts, option.secondary_opts)
            for option in self.params
            if isinstance(option, click.Option) and option.is_flag
            for name in option.opts
        }
        rewritten = list(_rewritten(args, switches, unused))
        ctx.meta[_UNUSED] = unused
        return super().parse_args(ctx, rewritten)


def unused_flags(ctx: click.Context) -> dict[str, str]:
    """The flags without effect that were given, with their values."""
    given: dict[str, str] = ctx.meta.get(_UNUSED, {})
    return given


def log_unused(given: dict[str, str]) -> None:
    """Say once, for each flag without effect that was given, why it has none.

    A warning if it was to switch something off, which stays on.
    """
    for name, value in given.items():
        flag = UNUSED[name]
        say = log.warning if flag.stays_on(value) else log.info
        say("Flag has no effect", flag=f"--{name}", value=value, reason=flag.why)


def shown_flags(ctx: click.Context) -> dict[str, str]:
    """Every flag and its value as text, for `/flagz`."""
    shown = {name: _as_text(value) for name, value in unused_flags(ctx).items()}
    for option in ctx.command.params:
        if isinstance(option, click.Option) and option.name in ctx.params:
            longest = max(option.opts, key=len)
            shown[longest.lstrip("-")] = _as_text(ctx.params[option.name])
    return dict(sorted(shown.items()))


def given_flags(ctx: click.Context) -> list[str]:
    """The flags of the command line, as they are written there."""
    shown = shown_flags(ctx)
    given = set(unused_flags(ctx))
    for option in ctx.command.params:
        source = ctx.get_parameter_source(option.name or "")
        if isinstance(option, click.Option) and source is ParameterSource.COMMANDLINE:
            given.add(max(option.opts, key=len).lstrip("-"))
    return [f"--{name}={shown[name]}" for name in sorted(given & shown.keys())]


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return ",".join(f"{name}={_as_text(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_as_text, value))}]"
    return _PASSWORD.sub("//", str(value))


def _rewritten(
    args: Sequence[str],
    switches: dict[str, tuple[list[str], list[str]]],
    unused: dict[str, str],
) -> Iterator[str]:
    """*args* as click reads them."""
    waiting = iter(args)
    for arg in waiting:
        if arg == "--":
            yield arg
            yield from waiting
            return
        if not arg.startswith("-"):
            yield arg
            continue
        if arg.startswith("-v="):
            arg = f"-{arg}"
        name, has_value, value = arg.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        flag = UNUSED.get(name[2:]) if name.startswith("--") else None
        if flag is not None:
            if not has_value:
                value = "true" if flag.is_switch else next(waiting, "")
            if flag.is_switch:
                _truth(name, value)
            unused[name[2:]] = value
        elif name in switches and has_value:
            ways, other_ways = switches[name]
            if _truth(name, value):
                yield ways[0]
            elif other_ways:
                yield other_ways[0]
        else:
            yield f"{name}={value}" if has_value else name


def _truth(name: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value not in _FALSE:
        raise click.UsageError(f"{name}: want true or false, got `{value}`")
    return False
