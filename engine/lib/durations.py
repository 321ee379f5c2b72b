"""Durations as Go prints them, for texts that people know from kube-scheduler."""


def go_duration(seconds: float) -> str:
    """What Go's `%v` makes of a duration: `5m0s`, `1.5s`, `250ms`, `1h0m0s`, `0s`."""
    nanos = round(seconds * 1e9)
    if nanos == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 1_000), ("ms", 1_000_000)):
        if abs(nanos) < 1_000 * size:
            return f"{_decimal(nanos, size)}{unit}"
    sign, nanos = ("-", -nanos) if nanos < 0 else ("", nanos)
    minutes, rest = divmod(nanos, 60_000_000_000)
    text = f"{_decimal(rest, 1_000_000_000)}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return sign + text


def _decimal(amount: int, size: int) -> str:
    """*amount* / *size* exactly, without zeros at the end."""
    sign, amount = ("-", -amount) if amount < 0 else ("", amount)
    whole, rest = divmod(amount, size)
    if not rest:
        return f"{sign}{whole}"
    digits = str(rest).zfill(len(str(size)) - 1).rstrip("0")
    return f"{sign}{whole}.{digits}"
