"""`starsched demo`: the product in half a minute, on a cluster in memory.

Owns the stories: what each one sets up, does and shows. Everything is real except the API server,
which is the embedded one (`devkit.cluster`): the scheduler, its policies, its answers and its
page are those of `starsched run`. What a story shows, it has read from the cluster or asked the
scheduler, and it fails if that is not what should have happened.

Begin with `edit`, the default story, and `stage`, what every story has at hand. A further story is
a module like it and a line in `scenarios`.
"""
