"""The page: the live answers as HTML, at the addresses at which programs get them as JSON.

Owns the screens (`screens`: which answer, which template, what the template is shown), the choice
between HTML, a stream of changes and JSON (`accept`, `handlers`, `streams`), and the files that a
browser loads (`static_files`). What it shows are records of `engine.surfaces.live.answers`, never
the kernel. It reads only; nothing here changes the cluster or the scheduler.
"""
