"""`scheduler_perf`, the benchmark of Kubernetes' own scheduler, against real control planes.

Its definitions and templates are read from the sources of Kubernetes in Go's module cache; they are
not part of this repository. `definitions` reads them, `templates` renders them, `operations`
carries out one operation after the other, `run` is one measurement of one scheduler. Begin reading
there.
"""
