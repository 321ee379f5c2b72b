"""Policies: sources, bundles, static analysis, views, verdict tables and the sandbox."""

import warnings

# Policies are parsed as Python too. Python's own warnings about style do not concern their authors,
# and would appear for a file `<unknown>` in the middle of a log of JSON.
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
