"""Policies: sources, bundles, static analysis, views, verdict tables and the sandbox."""

import warnings

# Policies are parsed as Python too. What Python would have written otherwise is no concern of their
# authors, who would be told of a file `<unknown>`, in the middle of a log of JSON.
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
