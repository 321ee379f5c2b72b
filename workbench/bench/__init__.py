"""What the hooks of policies cost."""
