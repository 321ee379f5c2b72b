"""An embedded API server for demo, simulation and tests: a verified fake."""
