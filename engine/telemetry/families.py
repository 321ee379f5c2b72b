"""What a metric is: a row of the table of metrics, from which the exported object is made.

Owns the kinds of metrics. Which there are is `metrics`' and `component_metrics`'.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar, overload

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

M = TypeVar("M")

#: Every row, by the name of the metric.
FAMILIES: Final[dict[str, "Family[Any]"]] = {}


class Family(Generic[M]):
    """A row: all that is known of one metric before it has a number.

    An attribute of a class that is a row is, in an instance, what `make_all` made of it.

    Attributes:
        kind: The class of the exported object: one of prometheus_client's, or one of those below.
        head: Name and labels, as queries have them: `requests_total{code,method}`.
        text: What it means.
        buckets: The bounds of a histogram; empty for the others.
        series: Labels that are exported before anything is counted: where alerts and dashboards
            look for the first time that something happens, an increase is seen only in a series
            that was there before.
    """

    def __init__(
        self,
        kind: Callable[..., M],
        head: str,
        text: str,
        *series: tuple[str, ...],
        buckets: Sequence[float] = (),
    ) -> None:
        self.kind = kind
        self.name, _, labels = head.removesuffix("}").partition("{")
        self.labels = labels.split(",") if labels else []
        self.text = text
        self.buckets = buckets
        self.series = series
        FAMILIES[self.name] = self

    def make(self, registry: CollectorRegistry, histogram: type[Histogram] = Histogram) -> M:
        """The exported object, registered in *registry*; *histogram* makes one with buckets."""
        kind: Callable[..., Any] = histogram if self.kind is Histogram else self.kind
        more = {"buckets": self.buckets} if self.buckets else {}
        made = kind(self.name, self.text, self.labels, registry=registry, **more)
        for values in self.series:
            made.labels(*values)
        exported: M = made
        return exported

    @overload
    def __get__(self, instance: None, owner: type) -> "Family[M]": ...
    @overload
    def __get__(self, instance: object, owner: type) -> M: ...
    def __get__(self, instance: object | None, owner: type) -> "Family[M] | M":
        if instance is None:
            return self
        raise AttributeError(f"{self.name} is not made yet")


def make_all(
    owner: object, registry: CollectorRegistry, histogram: type[Histogram] = Histogram
) -> None:
    """Make the metric of each row of *owner*'s class, as its attribute of the same name."""
    for name, row in vars(type(owner)).items():
        if isinstance(row, Family):
            setattr(owner, name, row.make(registry, histogram))


#: Numbers by the values of the labels: a text for one label, a tuple for several.
Readings = Mapping[Any, float]


class _Scraped(Collector):
    """What is made at a scrape."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], *, registry: CollectorRegistry
    ) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are known to be unique."""
        return []


class Pulled(_Scraped):
    """A gauge that is read from a running part at a scrape; not exported before `read` is set.

    `read` gives a number if there are no labels, else `Readings`.
    """

    _family: type[CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily
    read: Callable[[], float | Readings] | None = None

    def collect(self) -> Iterator[Metric]:
        """The numbers as they are now."""
        if self.read is None:
            return
        found = self.read()
        family = self._family(self._name, self._text, labels=self._labels)
        for values, number in list(found.items()) if isinstance(found, Mapping) else [((), found)]:
            family.add_metric([values] if isinstance(values, str) else list(values), number)
        yield family


class PulledCounter(Pulled):
    """As `Pulled`, a counter."""

    _family = CounterMetricFamily


class Renamed(_Scraped):
    """A histogram under its former name, which costs nothing but a longer scrape."""

    histogram: Histogram | None = None

    def collect(self) -> Iterator[Metric]:
        """What the histogram has now."""
        for metric in () if self.histogram is None else self.histogram.collect():
            renamed = Metric(self._name, self._text, metric.type)
            renamed.samples = [
                one._replace(name=self._name + one.name.removeprefix(metric.name))
                for one in metric.samples
            ]
            yield renamed


counter = partial(Family, Counter)
gauge = partial(Family, Gauge)
histogram = partial(Family, Histogram)
pulled = partial(Family, Pulled)
pulled_counter = partial(Family, PulledCounter)
former = partial(Family, Renamed)
