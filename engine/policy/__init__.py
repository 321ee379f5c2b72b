"""Policies: from the files that people write to verdicts that can be reused.

Owns sources and their checks (`source`, `check`, `arguments`, `documents`, and `lint`), the bundle
of a revision with its profiles (`bundle`, `profiles`, `config`), which fields a hook reads
(`analysis`) and how they are extracted (`view_fields`, `pod_views`, `node_views`), running hooks
(`evaluator`, and `sandbox`), and verdicts kept by what was read (`projections`, `verdicts`). What
the language is, is `engine.language`'s; which hook is called when is `scheduling`'s and the
kernel's; how an edit gets into force is `rollout`'s.

Begin with `bundle`, then `projections` and `verdicts`.
"""

import warnings

# Policies are parsed as Python too. Python's own warnings about style do not concern their authors,
# and would appear for a file `<unknown>` in the middle of a log of JSON.
warnings.filterwarnings("ignore", category=SyntaxWarning, module="<unknown>")
