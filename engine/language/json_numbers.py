"""Guards `json.decode` of policies against numbers that the interpreter cannot hold.

Owns which numbers those are, and the `json` that policies see. The library would end the attempt,
too, but with a report of its own on the standard error of the process, and at no place of the file.
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
#: The largest number that is let through.
LARGEST: float = sys.float_info.max


def refusal(text: str) -> str | None:
    """What is wrong with a number of the JSON document *text*: it is no finite float."""
    for token in _TOKEN.findall(text):
        # Ints of any length are ints; a float that long is read in no time.
        if token[0] == '"' or token.lstrip("-").isdecimal():
            continue
        if abs(float(token)) > LARGEST:
            shown = token if len(token) <= _LONGEST_SHOWN else token[: _LONGEST_SHOWN - 3] + "..."
            return f"json.decode(): the number {shown} is larger than any float"
    return None
