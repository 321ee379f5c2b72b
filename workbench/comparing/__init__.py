"""What two sets of policies say differently, on which smallest cluster, and whom none accepts."""
