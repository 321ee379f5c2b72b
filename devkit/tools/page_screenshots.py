"""Takes the screenshots of docs/page.md, in the browser of the tests, on answers made by hand.

Run it from the project's root after a change of the page's look:
`.venv/bin/python devkit/tools/page_screenshots.py`.
"""

import asyncio
import io
import sys
from pathlib import Path
from typing import Final

from PIL import Image

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from engine.surfaces.live.answers import PlaceCounts, QueuePage, RequestRange  # noqa: E402  # needs the path
from tests.browser import running_browser, visiting  # noqa: E402
from tests.engine.surfaces.page import answers  # noqa: E402
from tests.engine.surfaces.page.site import Site, running_site  # noqa: E402

FOLDER: Final = ROOT / "docs" / "page"
#: Name, address, colours, height and width of each.
SHOTS: Final = (
    ("queue", "/queue", "light", 640, 1280),
    ("pods", "/pods?text=checkout", "light", 300, 1280),
    ("why", "/explain/shop/checkout-1", "light", 860, 1280),
    ("why-narrow", "/explain/shop/checkout-1", "dark", 900, 420),
    ("policies", "/policies", "dark", 660, 1280),
    ("rollout", "/rollout", "dark", 780, 1280),
    ("rollout-examples", "/rollout#examples", "light", 470, 1280),
    ("nodes", "/nodes", "dark", 760, 1280),
    ("node", "/nodes/node-0007", "light", 700, 1280),
    ("shares", "/queues", "light", 1500, 1280),
    ("activity", "/activity", "light", 860, 1280),
)
#: Of each picture: enough for flat surfaces and text.
_COLOURS: Final = 64


def queue() -> QueuePage:
    """A queue with something in each place."""
    rows = (
        answers.row("web/api-1", place="active", position=1, attempts=0, reason="NotTriedYet",
                    message="", policies=(), waits_for=()),
        answers.row("batch/render-00012", pods=9812, reason="UntoleratedTaint",
                    message="0/60 nodes are available: 60 node(s) had untolerated taint(s).",
                    policies=("TaintToleration",),
                    waits_for=("Node added", "Node UpdateNodeTaint")),
        answers.row(),
        answers.row("batch/report-3", pods=59, requests={
            "cpu": RequestRange(20_000, 78_000, 2_891_000),
            "memory": RequestRange(34 * answers.GIB, 92 * answers.GIB, 3717 * answers.GIB),
        }),
        answers.row("ml/train-0", pods=3, reason="GroupIncomplete", group="ml/train",
                    place="gated", node_helps=False, policies=("GangScheduling",),
                    message="waiting for minCount pods from a gang to appear in scheduling queue",
                    waits_for=(), attempts=0),
        answers.row("shop/limited", place="backoff", reason="PolicyFailed", node_helps=False,
                    message="policy `quota` failed: quota.star:31: division by zero",
                    policies=("quota",), next_try_at="2026-11-25T19:30:07+00:00", waits_for=()),
    )  # fmt: skip
    counts = PlaceCounts(active=1, backoff=1, unschedulable=9872, gated=3)
    return answers.queue(*rows, counts=counts)


async def take() -> None:
    """Write every screenshot."""
    FOLDER.mkdir(exist_ok=True)
    site = Site()
    site.answers["/queue"] = queue()
    async with running_site(site), running_browser() as browser:
        for name, path, colours, height, width in SHOTS:
            size = {"width": width, "height": height}
            async with visiting(browser, color_scheme=colours, viewport=size) as visit:
                await visit.page.goto(site.url + path)
                await visit.page.locator("#live.on").wait_for()
                picture = Image.open(io.BytesIO(await visit.page.screenshot()))
            target = FOLDER / f"{name}.png"
            picture.convert("RGB").quantize(_COLOURS).save(target, optimize=True)
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    asyncio.run(take())
