"""Times of API objects: RFC 3339 texts as seconds since the epoch."""

import datetime


def epoch_seconds(text: str | None) -> float | None:
    """Seconds since the epoch of an RFC 3339 *text*; None if absent or malformed."""
    if not text:
        return None
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    try:
        return moment.timestamp()
    except (OverflowError, ValueError):
        return None
