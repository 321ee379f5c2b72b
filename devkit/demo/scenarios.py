"""The stories that there are: one line each."""

from typing import Final

from devkit.demo import edit, gangs, gpu, queues, riya, rollout
from devkit.demo.stage import Scenario

#: By the name of `--scenario`, in the order of the help; the first one is the default.
SCENARIOS: Final[dict[str, Scenario]] = {
    one.SCENARIO.name: one.SCENARIO for one in (edit, gpu, gangs, queues, rollout, riya)
}
