"""What the steps agree on: extension points, statuses, profiles. No I/O."""
