"""What a scheduler needs of its cluster and of its files, checked before it schedules.

Owns the table of rights (`rights`), the checks (`checks`) and how findings are shown (`findings`).
Nothing here decides or writes anything. Begin with `checks.preflight`.
"""
