"""What developers and demos need; the image is without it."""
