"""How a scheduler process runs, as its command line says it."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.core.framework.behaviors import NO_GATES
from engine.io.binding.binding_cycle import MOST_IN_FLIGHT
from engine.io.endpoints.server import SecureSettings
from engine.io.leader_election import LeaseSettings, make_identity
from engine.io.watching.readable import MOST_AGE_SECONDS
from engine.lib.saved_state import WhenUnread
from engine.policy.config import DEFAULT_SCHEDULER_NAME
from engine.rollout.last_resort import WAIT, WhenNone
from engine.surfaces.live.what_if.shapes import Shape


@dataclass(frozen=True)
class Settings:
    """How a scheduler process runs.

    Attributes:
        lease: The lease to compete for; None to schedule without one.
        secure: The endpoints for the network; None for none.
        local_port: The port of those for this host (0: a free one); None for none.
        admission_key: What the API server asks the admission webhook by; "": there is none, or
            the object of *admission_webhook* has it.
        admission_webhook: The ValidatingWebhookConfiguration that this process registers itself in;
            "": none.
        machine_types: Nodes that can be asked for at `/whatif`, by name.
        initial_backoff, max_backoff: Seconds that a rejected pod waits at least and at most.
        pops_early: Not while the queue is idle.
        max_unschedulable: Seconds after which a rejected pod is tried again in any case.
        emulated_minor: The minor version of Kubernetes that is answered like; None: that of the API
            server.
        gates: kube-scheduler's feature gates that are on, of `behaviors.GATES`.
        most_watch_age: Seconds for which what is known of a resource stays in use once it cannot be
            read: 0 not at all, infinity for ever.
        bindings: Most bindings in flight.
        logs_attempts: Each attempt has a line in the log.
        last_resort: The `schedulerName` of the pods that a start without usable policies is about,
            if those that are offered do not say; None where the stages have a configuration of
            their own.
        profile_names: The `schedulerName`s of that configuration.
        when_no_policies: Whether those pods wait then, or the built-in policies decide.
        when_unread: What happens when something that was saved before cannot be read.
        configuration: What `/configz` shows of the process; what decides is added.
        flags: What `/flagz` shows.
        version: Of the program.
        hostname: Names this process in events.
        identity: Names it in the lease.
    """

    lease: LeaseSettings | None = None
    secure: SecureSettings | None = None
    local_port: int | None = None
    admission_key: str = field(default="", repr=False)
    admission_webhook: str = ""
    machine_types: Mapping[str, Shape] = field(default_factory=dict)
    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    pops_early: bool = True
    max_unschedulable: float = 300.0
    emulated_minor: int | None = None
    gates: frozenset[str] = NO_GATES
    most_watch_age: float = MOST_AGE_SECONDS
    bindings: int = MOST_IN_FLIGHT
    logs_attempts: bool = False
    last_resort: str | None = DEFAULT_SCHEDULER_NAME
    profile_names: tuple[str, ...] = (DEFAULT_SCHEDULER_NAME,)
    when_no_policies: WhenNone = WAIT
    when_unread: WhenUnread = "wait"
    configuration: dict[str, Any] = field(default_factory=dict)
    flags: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    hostname: str = field(default_factory=socket.gethostname)
    identity: str = field(default_factory=make_identity)
