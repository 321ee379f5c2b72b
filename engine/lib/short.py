"""Texts of others, cut to what a reader needs of them."""


def shortened(text: str, most: int) -> str:
    """*text*; of one longer than *most* characters the beginning, and how much is left out."""
    if len(text) <= most:
        return text
    left_out = f"... ({len(text) - most:,} more characters)"
    return text[:most] + left_out
