"""Rolls edits of policies out, and back if they misbehave.

Owns the way of an offer: from a source (`sources`, `inbox`) through examination (`preparing`,
`trial`, `rehearsal`) and the stages in which it is compared with what is in force (`staging`;
measured by `comparing` and `shadow`, judged by `judge`, steered by `control`), into force and
through probation (`revisions`, the pure state), to the saved last good policies (`last_good`,
`saved_policies`), and what is reported of it (`reports`, `status`). What follows on what is one
table (`transitions`), and `rollout` carries it out. No failure changes what is in force.

What a bundle is and whether it is right is `policy`'s, and so are the fields of stages and gates
(`policy.rollout_config`); running tests is `testing`'s. Which policies decide a pod is the kernel's
(`kernel.scheduler_selector`). The shell switches schedulers: it is called with the new and the old
revision between two decisions. Begin with `rollout`, whose docstring has the figure, then
`transitions`, `staging` and `judge`; docs/rollout.md says what operators see.
"""
