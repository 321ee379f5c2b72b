"""What two sets of policies decide differently, and which pods no node accepts."""
