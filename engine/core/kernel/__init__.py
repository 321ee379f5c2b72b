"""The kernel: everything that happens to pods, as events in and instructions out.

It owns the state of a scheduler: the cache, the queue, the groups, the placements that wait in
permit, the nominations, the preemptions under way, and the throttle. `Kernel.handle` takes an event
(an object changed, a binding failed, time passed, another revision is in force) and returns what is
to be done about it; `Kernel.decide` tries the next pod. The program that drives it is called a
shell: it carries the instructions out and reports the results as events. There are five: the
running scheduler (`engine.app`), the simulation (`workbench.simulation.simulation`), the replay of
recordings (`workbench.replay.replay`), the extender that watches
(`engine.surfaces.extender_server.worlds`), and tests.

It holds no clock, no socket and no task: time comes with each event, policies are asked through
`Evaluator`, and questions to extenders are yielded. The same events give the same instructions, as
long as no policy takes so long that the throttle reacts. How one pod is decided is
`engine.core.scheduling`'s; carrying a decision out is `engine.io.binding`'s.

Begin with `events` and `instructions`, which are lists of records, then read `kernel` from the top;
`cluster` says what a change of an object means, `attempts` how an attempt begins to hold a node and
gives it back, `permits` how pods wait for each other.
"""
