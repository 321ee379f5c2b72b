"""What is asked by work in a thread that may have to end early."""


def never() -> bool:
    """The answer where nobody stops the work."""
    return False
