"""The running scheduler: everything between the API server and the policies, built and run.

Owns how the parts are connected, and the order of starting and stopping. `app` is the process and
the loop that decides; what it is built of has a module each, in the order of building:
`environment` (what every part works with), `reporting` (writes to the API server), `leadership`
(the lease), `carrying` (bindings and evictions), `watching` (informers and facts), `policies` (what
is in force), `counting` (decisions as metrics) and `surfaces` (endpoints). Begin with `app`.
"""

from engine.app.app import App
from engine.app.policies import PolicyParts
from engine.app.settings import Settings
from engine.io.leader_election import LeadershipLost

__all__ = ["App", "LeadershipLost", "PolicyParts", "Settings"]
