"""Facts that are written on the objects themselves: annotations of nodes and pods.

Owns which annotation is which fact. Pure.
"""

from collections.abc import Mapping

from engine.io.facts.readings import Reading, reading_of_text
from engine.policy.fact_config import AnnotationFacts


def read_annotations(rules: AnnotationFacts, annotations: Mapping[str, str]) -> dict[str, Reading]:
    """The readings of an object's *annotations*, by fact name."""
    readings: dict[str, Reading] = {}
    if rules.prefix:
        for key, text in annotations.items():
            name = key.removeprefix(rules.prefix)
            if name != key and name:
                readings[name] = reading_of_text(text)
    for name, key in rules.keys.items():
        if key in annotations:
            readings[name] = reading_of_text(annotations[key])
    return readings
