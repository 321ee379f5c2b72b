"""Which devices a claim gets: pools, selectors, the search. Pure: no I/O, no clock, no chance."""
