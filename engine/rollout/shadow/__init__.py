"""The shadow: a candidate decides beside the policies in force, and differences are counted.

Owns a copy of the live snapshot, sandboxes and one thread, from `begin` to `end`; it writes nothing
and nothing waits for it. What the counts mean is `judge`'s, when a shadow runs is `staging`'s.

    begin --deciding, decided--> a job for the thread, if it has room --> compared | skipped
    end: all of it goes, the counts stay

The calls, all of them where decisions are made: `Shadow.begin(candidate, base, cores)`, `end()`,
`measures`; `deciding(kernel)` right before and `decided(instructions)` right after each
`Kernel.decide`.
"""
