"""The screens: one entry each, with its template and what the template is shown."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.surfaces.page.activity_view import activity_view
from engine.surfaces.page.nodes_view import node_view, nodes_view
from engine.surfaces.page.policies_view import policies_view
from engine.surfaces.page.queue_view import pod_view, pods_view, queue_view
from engine.surfaces.page.rollout_view import rollout_view
from engine.surfaces.page.shares_view import share_view, shares_view
from engine.surfaces.page.what_if_view import what_if_view

MakeView = Callable[[Any, Mapping[str, str]], Any]


@dataclass(frozen=True)
class Screen:
    """A screen.

    Attributes:
        name: Of the screen, and of its template.
        title: In the browser's title, and in the navigation.
        make_view: (answer, query) -> what the template shows in addition to the answer.
        home: Its address in the navigation; empty if it is not there.
        section: The screen of the navigation that it belongs to.
        seconds: How often a browser that follows it gets a newer one. What has to be explained or
            is large is asked for less often.
        has_charts: It draws.
        is_followed: A browser gets newer ones; not of what was asked once.
    """

    name: str
    title: str
    make_view: MakeView
    home: str = ""
    section: str = ""
    seconds: float = 2.0
    has_charts: bool = False
    is_followed: bool = True

    @property
    def template(self) -> str:
        """The file of its template."""
        return f"{self.name}.html"


QUEUE: Final = Screen("queue", "Queue", queue_view, "/queue", "queue")
PODS: Final = Screen("pods", "Pods", pods_view, section="queue", seconds=5.0)
WHY: Final = Screen(
    "why", "Why", lambda answer, _asked: pod_view(answer), section="queue", seconds=5.0
)
POLICIES: Final = Screen(
    "policies", "Policies", lambda page, _asked: policies_view(page), "/policies", "policies"
)
ROLLOUT: Final = Screen(
    "rollout", "Rollout", lambda page, _asked: rollout_view(page), "/rollout", "rollout"
)
NODES: Final = Screen(
    "nodes", "Nodes", lambda page, _asked: nodes_view(page), "/nodes", "nodes", 10.0
)
NODE: Final = Screen(
    "node", "Node", lambda answer, _asked: node_view(answer), section="nodes", seconds=15.0
)
SHARES: Final = Screen("shares", "Shares", shares_view, "/queues", "shares", 5.0)
SHARE: Final = Screen(
    "share", "Share", lambda answer, _asked: share_view(answer), section="shares", seconds=5.0
)
WHAT_IF: Final = Screen(
    "what_if",
    "What if",
    lambda answer, _asked: what_if_view(answer),
    section="nodes",
    is_followed=False,
)
ACTIVITY: Final = Screen(
    "activity",
    "Activity",
    lambda page, _asked: activity_view(page),
    "/activity",
    "activity",
    seconds=10.0,
    has_charts=True,
)
#: Followed too: a standby may lead soon, and a pod that is not known yet may come.
REFUSAL: Final = Screen("refusal", "No answer", lambda _answer, _asked: None)

#: In the order of the navigation.
NAVIGATION: Final = (QUEUE, POLICIES, ROLLOUT, NODES, SHARES, ACTIVITY)
