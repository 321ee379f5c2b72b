"""Metrics of policies, read while they are evaluated."""

import threading
from collections import Counter

from prometheus_client import CollectorRegistry

from engine.surfaces.pulled_metrics import show_policies
from engine.telemetry.metrics import Metrics


def test_evaluations_are_read_while_a_trial_counts_in_its_thread() -> None:
    """A scrape failed: the dictionary changed its size during the iteration."""
    registry = CollectorRegistry()
    evaluations: Counter[tuple[str, str, str]] = Counter()
    counts = {"restarts": 0, "answered": 0, "asked": 0}
    show_policies(Metrics(registry), counts=lambda: counts, evaluations=evaluations)
    is_read = threading.Event()

    def count() -> None:
        number = 0
        while not is_read.is_set():
            evaluations["policy", "Filter", str(number % 5000)] += 1
            number += 1
            if number % 5000 == 0:
                evaluations.clear()

    trial = threading.Thread(target=count)
    trial.start()
    try:
        for _ in range(60):
            registry.get_sample_value("scheduler_plugin_evaluation_total", {})
    finally:
        is_read.set()
        trial.join()
