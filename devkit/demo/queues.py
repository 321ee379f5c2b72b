"""The story of queues: teams take turns, a share holds back, and what an edit does is known before.

The queues are written out in a QueueTree, and pods name theirs for two packs, so that the packs are
switched by one word.
"""

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devkit.cluster import make_node, make_pod
from devkit.demo.stage import CONFIG_MAP, NAMESPACE, Scenario, Stage, StoryFailed

GPU: Final = "nvidia.com/gpu"
_NODES, _GPUS = 4, 4
_FLOOD, _NEXT, _ENDED = 21, 12, 4

_TREE: Final = """\
apiVersion: starsched.dev/v1
kind: QueueTree
policy: {policy}
queues:
  vision: {{weight: {vision}}}
  web: {{weight: {web}}}
"""


def tree(policy: str, *, vision: int = 2, web: int = 1) -> str:
    """The document with these weights, governed by *policy*."""
    return _TREE.format(policy=policy, vision=vision, web=web)


def _nodes() -> list[dict[str, Any]]:
    return [make_node(f"node-{i + 1}", resources={GPU: str(_GPUS)}) for i in range(_NODES)]


def _jobs(team: str, count: int, first: int = 1) -> list[dict[str, Any]]:
    """Jobs with a GPU each, the first with so many: `drf` reads the label, `proportion` the
    annotation."""
    made = []
    for number in range(count):
        pod = make_pod(
            f"{team}-{number + 1:02}", labels={"team": team},
            resources={GPU: str(1 if number else first)}, restartPolicy="Never",
        )  # fmt: skip
        pod["metadata"]["annotations"] = {"scheduling.volcano.sh/queue-name": team}
        made.append(pod)
    return made


def _names(team: str, count: int) -> list[str]:
    return [pod["metadata"]["name"] for pod in _jobs(team, count)]


async def run(stage: Stage) -> dict[str, Any]:
    """Let one team flood the cluster, another come, and edit who may have what."""
    total = _NODES * _GPUS
    web, vision = _names("web", _FLOOD), _names("vision", _NEXT)
    # 1. A flood.
    stage.say(f"There are {total} GPUs, and two queues, governed by the pack `drf`:")
    stage.show_text("tree.yaml", tree("drf"), "yaml")
    stage.cluster.create(*_jobs("web", _FLOOD, first=_ENDED))
    jobs = total - _ENDED + 1
    await stage.until(lambda: len(stage.placed(web)) == jobs, "web to have all GPUs")
    stage.say(
        f"`web` floods it with a job of {_ENDED} GPUs and {_FLOOD - 1} of one: it has all {total}."
    )
    # 2. Another one comes: turns.
    stage.cluster.create(*_jobs("vision", _NEXT))
    await _share_of(stage, "vision", waiting=_NEXT)
    await _no_backoff(stage)
    stage.say(f"\n`vision` comes with {_NEXT} jobs. Now the large job of `web` ends.")
    stage.finish(web[:1])
    await stage.until(lambda: len(stage.placed(vision)) == _ENDED, "vision to start")
    waiting = [name for name in web if name not in stage.placed(web)]
    stage.say(
        f"All {_ENDED} GPUs go to `vision`, which has the smaller share by weight, though "
        f"{len(waiting)} jobs of `web` came before. That is an order; nothing is held back."
    )
    # 3. Another pack under the same queues and pods.
    stage.say("\nThe pack is switched: `policy: drf` becomes `policy: proportion`. The plan first:")
    with tempfile.TemporaryDirectory(prefix="starsched-queues-") as directory:
        editor = _Editor(stage, Path(directory))
        switched = await editor.plan(tree("proportion"))
        await editor.apply(switched)
        held = await stage.until_answer(
            f"explain/default/{waiting[0]}",
            lambda answer: answer["outcome"] == "held",
            "web to be held",
        )
        stage.say("`web` has more than its share now, so its next job is held:")
        stage.show_text(held["reason"], held["headline"])
        rows = [(one["text"], one["policy"]) for one in held["remedies"]]
        if rows:
            stage.show("What would help", ("change", "lifts the hold of"), rows)
        stage.say(f"The rule: {held['turn']['hold']['source']}")
        # 4. Weights.
        stage.say("\nThe weights are edited: `web` gets 6, `vision` keeps 2. The plan first:")
        edited = await editor.plan(tree("proportion", web=6))
        await editor.apply(edited)
    started = await _started_of(stage, web, vision)
    stage.say(
        f"Now {_ENDED} jobs of `web` end, and its next ones start, as those of `vision` did "
        f"before: {started['web']} of `web` and {started['vision']} of `vision` run."
    )
    page = await stage.ask("queues")
    return {
        "flood": {"web": total, "of": _FLOOD},
        "turns": {"vision": _ENDED, "web_waiting": len(waiting)},
        "held": {"pod": waiting[0], "reason": held["reason"], "message": held["message"]},
        "plans": {"pack": switched["queues"], "weights": edited["queues"]},
        "newly_gated": switched["measures"]["counts"].get("newly_gated", 0),
        "running": started,
        "headline": page["headline"],
    }


async def _started_of(stage: Stage, web: Sequence[str], vision: Sequence[str]) -> dict[str, int]:
    """Let some jobs of both end, and wait until the next of both have taken their GPUs."""
    running = {"web": _running(stage, web), "vision": _running(stage, vision)}
    stage.finish([*sorted(running["web"])[:_ENDED]])

    def taken() -> Counter[str] | None:
        now = Counter({"web": len(_running(stage, web)), "vision": len(_running(stage, vision))})
        return now if now.total() == _NODES * _GPUS else None

    return dict(await stage.until(taken, "all GPUs to be taken again"))


def _running(stage: Stage, names: Sequence[str]) -> set[str]:
    """Those of the pods *names* that have a node and have not ended."""
    found = set()
    for name in stage.placed(names):
        pod = stage.cluster.get("pods", name)
        if pod is not None and pod["status"].get("phase") != "Succeeded":
            found.add(name)
    return found


async def _share_of(stage: Stage, queue: str, waiting: int) -> None:
    """Wait until so many pods of *queue* wait."""
    await stage.until_answer(
        "queues",
        lambda page: any(
            row["path"] == queue and row["pods"]["waiting"] == waiting for row in page["rows"]
        ),
        f"{queue} to be counted",
    )


async def _no_backoff(stage: Stage) -> None:
    """Wait until all that wait would be tried at once: a pod in backoff misses its turn."""
    await stage.until_answer(
        "queue",
        lambda page: page["counts"]["unschedulable"] == page["total_pods"],
        "no pod to be in backoff",
    )


class _Editor:
    """Plans and applies edits of the tree by the commands, as people do.

    Args:
        stage: What is edited.
        directory: For the edited files.
    """

    def __init__(self, stage: Stage, directory: Path) -> None:
        self._stage = stage
        self._policies = directory / "policies"
        self._policies.mkdir()
        self._kubeconfig = stage.cluster.write_kubeconfig(directory / "kubeconfig")

    async def plan(self, text: str) -> dict[str, Any]:
        """What the tree *text* would do, shown."""
        (self._policies / "tree.yaml").write_text(text)
        plan = await self._run("plan", codes=(0, 1))
        queues = plan["queues"]
        rows = [
            (
                one["queue"],
                _gpus(one["share_before"]),
                _gpus(one["share_after"]),
                one["pods"],
            )
            for one in queues["changes"]
        ]
        columns = ("queue", "GPUs, in force", "GPUs, edited", "pods")
        self._stage.show(f"starsched plan: caused by {Path(queues['place']).name}", columns, rows)
        counts = plan["measures"]["counts"]
        said = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts.items())
        self._stage.say(f"Pods: {said or 'no difference'}.")
        return plan

    async def apply(self, plan: Mapping[str, Any]) -> None:
        """Apply what was planned, and wait until it is in force."""
        before = self._stage.revision
        await self._run("apply", "--index", plan["index"], codes=(0,))
        await self._stage.until(lambda: self._stage.revision != before, "the edit to be in force")
        self._stage.say(
            f"starsched apply: in force, revision {before} -> {self._stage.revision}.\n"
        )

    async def _run(self, command: str, *words: str, codes: Sequence[int]) -> dict[str, Any]:
        where = [f"--kubeconfig={self._kubeconfig}", f"--configmap={NAMESPACE}/{CONFIG_MAP}"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "workbench.cli.main", command, str(self._policies)),
            *(*where, "--output=json", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate()
        if process.returncode not in codes:
            raise StoryFailed(f"starsched {command}: {errors.decode() or out.decode()}")
        found: dict[str, Any] = json.loads(out)
        return found


def _gpus(share: Mapping[str, int] | None) -> str:
    return "no share" if share is None else str(share.get(GPU, "as before"))


def _leave(stage: Stage) -> None:
    """Let a third team come, whose queue is not there."""
    stage.cluster.create(*_jobs("speech", 2))


SCENARIO: Final = Scenario(
    name="queues",
    summary="teams take turns, a share holds one back and says why, and what an edit of weights or "
    "of the pack does is planned before it is applied",
    policies={"tree.yaml": tree("drf")},
    objects=_nodes,
    run=run,
    page="queues",
    shows="the queues with their shares, and who has what another one lacks",
    leave=_leave,
)
