"""The policies as an extender of a stock kube-scheduler, over HTTP.

Owns the protocol (`server`, `requests`), the answers (`policy_extender`), and what is known of the
cluster: from the request alone, or with `--watch` through a kernel that follows the cluster and
decides nothing (`worlds`). It does not place pods; it binds one when kube-scheduler requests it.

Begin with `worlds`, then `policy_extender`.
"""
