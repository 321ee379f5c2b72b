"""The names and the sizes of policy files, for a directory's files and a ConfigMap's keys alike.

Owns the suffixes by which a file is a policy, its tests, or a document, and how many and how large
a set of them may be. Finding files is the
caller's.
"""

from typing import Final

STARLARK_SUFFIX: Final = ".star"
#: Tests of policies.
TEST_SUFFIX: Final = "_test.star"
DOCUMENT_SUFFIXES: Final = (".yaml", ".yml", ".json")
#: What tests read, next to them; no configuration.
TEST_DATA_SUFFIXES: Final = ("_test.yaml", "_test.yml", "_test.json")
#: Of every file that is one of a set of policies.
SUFFIXES: Final = (STARLARK_SUFFIX, *DOCUMENT_SUFFIXES)

#: Bytes of a set of policies, which a ConfigMap cannot exceed, and its files.
MAX_BYTES: Final = 1 << 20
MAX_FILES: Final = 500


def is_document(name: str) -> bool:
    """True for the name of a document that may configure something."""
    return name.endswith(DOCUMENT_SUFFIXES) and not name.endswith(TEST_DATA_SUFFIXES)
