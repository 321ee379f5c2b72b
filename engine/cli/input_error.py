"""The error of input that cannot be read, as every command says it."""

import click


class InputError(click.ClickException):
    """A file that is missing, broken or of another kind: one line with its place, exit code 2.

    Unlike `click.UsageError` it shows no usage: the command was right, what it was given is not.
    """

    exit_code = 2
