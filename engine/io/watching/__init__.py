"""Reflectors and informers: the objects of one resource as a stream of changes.

Owns listing, watching from a resourceVersion and beginning again when a watch breaks
(`reflector`), and the store that turns this into calls with an old and a new object (`informer`).
What a change means is the handlers' business; requests are `kube`'s. Begin with the figure in
`reflector`.
"""
