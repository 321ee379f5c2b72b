"""Describes bytes that are not valid UTF-8.

Owns the wording. The caller adds which file they are in.
"""

import base64
import binascii
from typing import Final

# Byte order marks of the encodings that some editors and shells write in place of UTF-8.
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")


def describe_error(error: UnicodeDecodeError) -> str:
    """The message for *error*: want UTF-8, got which byte at which offset, counted from 0."""
    found = _first(error)
    if error.object.startswith(_UTF_16):
        return f"want UTF-8 text, got other bytes: {found}, as UTF-16 begins"
    return f"want UTF-8 text, got other bytes: {found}"


def wrong_byte_of_base64(text: str) -> str:
    """The first invalid byte of the decoded base64; "" if it is valid UTF-8."""
    try:
        base64.b64decode(text).decode()
    except UnicodeDecodeError as error:
        return _first(error)
    except (binascii.Error, ValueError):
        pass
    return ""


def _first(error: UnicodeDecodeError) -> str:
    return f"0x{error.object[error.start]:02x} at offset {error.start}"
