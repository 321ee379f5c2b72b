"""The records that all steps of a decision share: statuses, reasons, profiles, extenders. No I/O.

Owns what a filter says of a node (`status`), the stable words for causes (`reason_kinds`,
`reasons`), which policies run at which extension point, in which order and with which weights
(`profile`), what is configured for an extender (`extender`), and what differs between minor
versions of Kubernetes (`behaviors`). It reads no configuration (`policy.profiles`,
`policy.extenders`) and runs nothing (`scheduling`). Begin with `profile`.
"""
