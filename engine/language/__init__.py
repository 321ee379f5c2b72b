"""What a policy's text means, found without running it.

`syntax` parses it, `resolve` tells what its names and calls mean, `modules` has the top level of
its files, and `infer` works out with `values` what each expression may be and what it reads
(`effects`). What follows from that is the business of others: reads, checks and lints in
`engine.policy`. Begin with `values`.
"""
