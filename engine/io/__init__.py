"""What talks to the API server and to the rest of the world."""
