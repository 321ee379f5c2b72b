"""What a running scheduler of ours exports, read from its `/metrics`."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


@dataclass(frozen=True)
class Scraped:
    """The samples of one answer."""

    samples: tuple[Sample, ...]

    @classmethod
    def of(cls, text: str) -> "Scraped":
        """Those in *text*."""
        families = text_string_to_metric_families(text)
        return cls(tuple(sample for family in families for sample in family.samples))

    def total(self, name: str, labels: Mapping[str, str] | None = None) -> float:
        """The sum over the samples of *name* with these labels; 0 if there are none."""
        wanted = (labels or {}).items()
        found = (one for one in self.samples if one.name == name)
        return sum(one.value for one in found if wanted <= one.labels.items())


@dataclass(frozen=True, slots=True)
class OfTree:
    """What a tree of queues took so far.

    Attributes:
        asked: Questions to its policy: queues of pods, keys, shares, quotas, who gives back.
        shares_seconds: That computing shares took.
        wakes: Requests that were asked about again because something became free.
        in_vain: Of these, those that could not start then.
        reclaimed: Pods that had to go for a request of another queue.
    """

    asked: float
    shares_seconds: float
    wakes: float
    in_vain: float
    reclaimed: float

    @classmethod
    def of(cls, found: Scraped) -> "OfTree":
        """As *found* says."""
        in_vain = found.total("starsched_queue_woken_total", {"useful": "false"})
        return cls(
            asked=found.total(
                "scheduler_plugin_evaluation_total", {"extension_point": "QueueTree"}
            ),
            shares_seconds=found.total("starsched_shares_seconds_total"),
            wakes=found.total("starsched_queue_woken_total"),
            in_vain=in_vain,
            reclaimed=found.total("starsched_reclaimed_pods_total"),
        )
