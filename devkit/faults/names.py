"""What the objects of the scheduler itself are called in a simulated cluster."""

from typing import Final

from engine.rollout import last_good
from engine.rollout.control import SUFFIX

NAMESPACE: Final = "starsched"
POLICIES: Final = "starsched-policies"
LAST_GOOD: Final = POLICIES + last_good.SUFFIX
CONTROL: Final = POLICIES + SUFFIX
FACTS: Final = "node-facts"
LEASE: Final = "starsched"
