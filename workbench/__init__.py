"""What authors and operators run by hand."""
