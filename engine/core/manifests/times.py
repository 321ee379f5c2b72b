"""Times in the text of manifests: what the API server reads, and the form in which it stores them.

Owns the two types of times that the API has, which the OpenAPI document names.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_SHAPE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])([01]\d|2[0-4]):([0-5]\d|60))",
    re.ASCII,
)
# As stored. Leap days and other eras are left to the closer look, which takes longer.
_DATE: Final = (
    r"[12][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
_CLOCK: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
# The time that Go has for none.
_ZERO: Final = datetime(1, 1, 1, tzinfo=UTC)


class TimeRefused(ValueError):
    """The text is no time, or not of this type."""


class TimeForm:
    """One type of times.

    Args:
        digits: How many digits of a second are stored. Where there are any, none may be missing and
            none added; where there are none, those that are sent are cut off.

    Attributes:
        stored: A pattern of times that are as they are stored.
        example: A time of this type.
    """

    def __init__(self, digits: int) -> None:
        self._digits = digits
        fraction = rf"\.[0-9]{{{digits}}}" if digits else ""
        self.stored = rf"\A{_DATE}T{_CLOCK}{fraction}Z\Z"
        self.example = "2006-01-02T15:04:05" + ("." + "0" * digits if digits else "") + "Z"

    def read(self, text: str) -> str | None:
        """*text* as it is stored: in UTC. None for the zero time. Raises `TimeRefused`.

        Source:
            Time.UnmarshalJSON, MicroTime.UnmarshalJSON.
        """
        match = _SHAPE.fullmatch(text)
        if match is None:
            raise TimeRefused(text)
        *fields, fraction, sign, hours, minutes = match.groups()
        if self._digits and len(fraction or "") != self._digits:
            raise TimeRefused(text)
        kept = int((fraction or "")[: self._digits] or 0)
        try:
            year, month, day, hour, minute, second = map(int, fields)
            moment = datetime(year, month, day, hour, minute, second, kept, tzinfo=UTC)
            offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
            moment += offset if sign == "-" else -offset
        except (ValueError, OverflowError) as error:
            raise TimeRefused(text) from error
        if moment == _ZERO:
            return None
        spec = "microseconds" if self._digits else "seconds"
        return moment.isoformat(timespec=spec).removesuffix("+00:00") + "Z"


_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."

#: By the name of their schema in the OpenAPI document.
TIMES: Final = {f"{_META}Time": TimeForm(0), f"{_META}MicroTime": TimeForm(6)}
