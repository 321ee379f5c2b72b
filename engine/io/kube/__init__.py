"""The API server over HTTP: configuration, requests, answers and errors.

Owns what a kubeconfig or a pod's service account says (`config`), the requests of the scheduler
(`client`), the two ways to send them (`direct`, over a `pool` of `connection`s, and `proxied`,
through aiohttp), and the errors that callers see (`errors`, which opens with their tree). It also
sends requests to extenders (`extender_client`). No error of an HTTP library leaves this folder.

It does not know what objects mean: bodies are bytes. Lists and watches are `watching`'s, and what
is written is decided in `binding`. Begin with `client`, then `connection`.
"""
