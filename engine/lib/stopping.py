"""What is asked by work in a thread that may have to end early."""


def never() -> bool:
    """False: for work that is not stopped."""
    return False
