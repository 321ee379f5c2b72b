"""What is probably wrong with policies, beyond what keeps them from running."""
