"""Small parts without a domain: clock, heap."""
