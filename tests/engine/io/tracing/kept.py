"""A trace for tests, which keeps its spans."""

from engine.telemetry.spans import Span


class KeptTrace:
    """A trace at one moment, with ids that count."""

    trace_id = 0xABC
    epoch = 1_700_000_000.0

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._last_id = 0

    def now(self) -> float:
        return 5.0

    def new_span_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def ended(self, span: Span) -> None:
        self.spans.append(span)
