"""Manifests as an API server reads them: what it would store of one, or its refusal.

Owns what happens to a new object between its text and the store of kube-apiserver with its default
admission plugins: types (`schema`), defaults (`defaults`, `pod_defaults`, `quantities`), admission
(`admission`), and field rules (`validation`), for the kinds that a scheduler meets (`kinds`), with
the refusals in the server's words (`errors`). Plain functions on plain data: other objects come in
through a lookup.
"""
