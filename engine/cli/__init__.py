"""The command line: one module per command; thin, no decisions."""
