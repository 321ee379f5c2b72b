"""Kubernetes objects as the scheduler reads them: typed, frozen, without I/O.

Owns decoding from the API's JSON (`objects`, `decoding`) and the records that decisions work with:
`Pod`, `Node`, `NodeInfo` (a node plus the pods counted against it), claims and devices, quantities,
selectors. A field that nothing reads is not decoded. Defaults of the API are applied here, once.
What a policy may read of these objects is `policy.view_fields`'; what changes together is
`caching`'s. Begin with `pod`, then `node_info`.
"""
