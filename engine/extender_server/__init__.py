"""The policies as an extender of a stock kube-scheduler, over HTTP.

Owns the protocol (`server`, `requests`), the answers (`judge`), and what is known of the cluster:
from the request alone, or with `--watch` by a kernel that follows the cluster and decides nothing
(`worlds`). It does not place pods, except where kube-scheduler has it bind one.

Begin with `worlds`, then `judge`.
"""
