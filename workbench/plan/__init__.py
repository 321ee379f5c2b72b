"""What an edit of the policies would change."""
