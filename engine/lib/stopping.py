"""The check that work in a thread makes to see if it should stop early."""


def never() -> bool:
    """False: for work that is not stopped."""
    return False
