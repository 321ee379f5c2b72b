"""What policies can use, as types for editors."""
