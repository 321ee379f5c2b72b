"""Rolls edits of policies out, and back if they misbehave.

Owns the way of an offer: from a source (`sources`, `offers`) through its stages (`trial`,
`rehearsal`), into force and through probation (`revisions`, the pure state), to the saved last good
policies (`last_good`, `saved_policies`), and what is reported of it (`reports`). `rollout` puts
these together. No failure changes what is in force.

What a bundle is and whether it is right is `policy`'s, running tests `policy_testing`'s. The shell
switches schedulers: it is called with the new and the old revision between two decisions. Begin
with `rollout`, whose docstring has the figure, then `revisions`.
"""
