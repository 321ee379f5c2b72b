"""Who of several queues may have how much: the tree of queues, its sums, and division.

Owns the arithmetic of shares, in whole numbers throughout: the division of a total among those that
want it, the tree of queues with what is wrong in it, and the sums of pods that belong to each
queue. Plain functions and records: no clock, no I/O, and no scheme of fairness, which policies
have.

Begin with `tree`, then `sums`. `divide` stands alone; policies call it by name.
"""
