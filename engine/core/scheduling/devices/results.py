"""Makes the allocation that is written into a claim from the result of a search.

Owns where an allocation can be used (its node selector), which parameters drivers get with it, and
the names of shares.
"""

import uuid
from collections.abc import Sequence
from typing import Final

import msgspec

from engine.core.model.devices import (
    AllocationResult,
    DeviceAllocation,
    DeviceAllocationConfiguration,
    DeviceResult,
    ResourceClaim,
)
from engine.core.model.objects import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from engine.core.scheduling.devices.requests import AllocationError, Wanted
from engine.core.scheduling.devices.search import Chosen, ClaimChoice

_SHARES: Final = uuid.UUID("5c1f3b52-6f0d-4b0b-9a55-5d1d3f7b9c11")


def allocation_of(claim: ResourceClaim, choice: ClaimChoice, node_name: str) -> AllocationResult:
    """The allocation of *choice* for *claim* on a node.

    Raises `AllocationError` for a slice whose node selector has several terms.
    """
    results = tuple(_result(claim, chosen, i) for i, chosen in enumerate(choice.devices))
    return AllocationResult(
        devices=DeviceAllocation(results=results, config=_configs(claim, choice)),
        node_selector=_node_selector(claim, choice, node_name),
    )


def _result(claim: ResourceClaim, chosen: Chosen, index: int) -> DeviceResult:
    wanted, device = chosen.wanted, chosen.device
    driver, pool, name = device.id
    share = None
    if device.allows_many:
        # The same claim gets the same names again, so a decision can be repeated; two shares that
        # exist at once are of different claims, or have different places in one.
        seed = f"{claim.metadata.uid or claim.key}/{driver}/{pool}/{name}/{index}"
        share = str(uuid.uuid5(_SHARES, seed))
    return DeviceResult(
        request=wanted.full_name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if wanted.admin_access else None,
        tolerations=tuple(wanted.tolerations),
        binding_conditions=device.record.binding_conditions,
        binding_failure_conditions=device.record.binding_failure_conditions,
        share_id=share,
        consumed_capacity={
            device.published_name(capacity): str(amount)
            for capacity, amount in (chosen.consumed or {}).items()
        },
    )


def _configs(
    claim: ResourceClaim, choice: ClaimChoice
) -> tuple[DeviceAllocationConfiguration, ...]:
    configs: list[DeviceAllocationConfiguration] = []
    of_class: dict[str, range] = {}
    for wanted, device_class in choice.wanted:
        places = of_class.get(device_class.metadata.name)
        if places is not None:
            for place in places:
                known = configs[place]
                configs[place] = msgspec.structs.replace(
                    known, requests=(*known.requests, wanted.full_name)
                )
            continue
        start = len(configs)
        configs += [
            DeviceAllocationConfiguration(
                source="FromClass", requests=(wanted.full_name,), opaque=config.opaque
            )
            for config in device_class.spec.config
        ]
        of_class[device_class.metadata.name] = range(start, len(configs))
    configs += [
        DeviceAllocationConfiguration(
            source="FromClaim", requests=config.requests, opaque=config.opaque
        )
        for config in claim.spec.devices.config
        if not config.requests
        or any(_is_named(wanted, config.requests) for wanted, _ in choice.wanted)
    ]
    # Naming no request is for all of them.
    return tuple(
        msgspec.structs.replace(config, requests=())
        if all(_is_named(wanted, config.requests) for wanted, _ in choice.wanted)
        else config
        for config in configs
    )


def _is_named(wanted: Wanted, names: Sequence[str]) -> bool:
    return wanted.request in names or wanted.full_name in names


def _node_selector(
    claim: ResourceClaim, choice: ClaimChoice, node_name: str
) -> NodeSelector | None:
    """The nodes that reach all of the devices; None if every node does."""
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for chosen in choice.devices:
        record, spec = chosen.device.record, chosen.device.slice.record.spec
        where = record if spec.per_device_node_selection else spec
        if where.node_name or record.binds_to_node:
            requirement = NodeSelectorRequirement("metadata.name", "In", (node_name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(requirement,)),))
        terms = where.node_selector.node_selector_terms if where.node_selector else ()
        if len(terms) > 1:
            raise AllocationError(
                f"create NodeSelector for claim {claim.metadata.name}: "
                f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms",
                f"resourceslice {chosen.device.slice.name}",
                "InvalidDevice",
            )
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def _add_new(known: list[NodeSelectorRequirement], more: Sequence[NodeSelectorRequirement]) -> None:
    for requirement in more:
        if not any(
            requirement.key == other.key
            and requirement.operator == other.operator
            and set(requirement.values) == set(other.values)
            for other in known
        ):
            known.append(requirement)
