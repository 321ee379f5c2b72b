"""`python -m devkit.faults`, as `make simulate-faults` calls it."""

from devkit.faults.command import main

main()
