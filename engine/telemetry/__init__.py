"""What the process says about itself: logs, metrics and health endpoints."""
