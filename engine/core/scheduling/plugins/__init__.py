"""Plugins of the runtime: what no policy can decide, because objects are held and written.

Owns volume binding and dynamic resources: their filters, what they hold between a decision and its
binding, and the plan of what is to be written. Everything else that kube-scheduler calls a plugin
is a policy (`policies/kubernetes`). Writing is `binding`'s; which devices fit is `devices`'s.

Begin with `engine/core/scheduling/runtime_plugin.py`, the interface, then `volume_binding`;
`registry` lists the plugins.
"""
