"""The command line: one module per command, thin, without decisions of its own.

Owns options, reading input files into what `offline`, `policy_testing` or `app` take, printing
results as text or JSON, exit codes, and the supervision of commands that run policies in their own
process (`supervisor`). It does not own what a command computes.

Begin with `main`, which lists the commands; then any `*_command` module. What several commands
share is in modules named for it: `policy_option`, `cluster_reading`, `input_error`, `output_file`.
"""
