"""Guards `json.decode` of policies against numbers that the interpreter cannot hold.

Owns which numbers those are, and the `json` that policies see. The library would end the attempt
for a float that is too large, too, but with a report of its own on the standard error of the
process, and at no place of the file. Of an int that does not fit in 64 bits it makes a float, and
says nothing; it writes such an int as it is.
"""

import re
import sys
from typing import Final

#: What is called in Starlark; takes a text, and gives what to fail with, or None.
NATIVE: Final = "_json_refusal"
#: The name under which the module of builtins has the guarded library.
EXPORTED: Final = "guarded_json"

TEXT: Final = f"""
def _json_decode(x, /):
    refusal = {NATIVE}(x) if type(x) == "string" else None
    if refusal != None:
        fail(refusal)
    return json.decode(x)

{EXPORTED} = struct(decode = _json_decode, encode = json.encode)
"""

# Texts are stepped over whole; one without an end reaches to the end of all.
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]|\\.)*"?|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?', re.DOTALL
)
_LONGEST_SHOWN: Final = 40
# What the library reads as ints. Shorter ones than these are among them.
_LEAST_INT: Final = -(1 << 63)
_LARGEST_INT: Final = (1 << 64) - 1
_DIGITS: Final = 18
_DIGITS_READ: Final = 40  # leading zeros are none in JSON, so a longer one is too large as well
#: The largest number that is let through.
LARGEST: float = sys.float_info.max


def refusal(text: str) -> str | None:
    """What is wrong with a number of the JSON document *text*: it would not be what it says."""
    for token in _TOKEN.findall(text):
        if token[0] == '"':
            continue
        shown = token if len(token) <= _LONGEST_SHOWN else token[: _LONGEST_SHOWN - 3] + "..."
        if token.lstrip("-").isdecimal():
            # The length first: what has a million digits is not to be read.
            if len(token) > _DIGITS and not _LEAST_INT <= int(token[:_DIGITS_READ]) <= _LARGEST_INT:
                return f"json.decode(): the int {shown} does not fit in 64 bits"
        elif abs(float(token)) > LARGEST:  # a float that long is read in no time
            return f"json.decode(): the number {shown} is larger than any float"
    return None
