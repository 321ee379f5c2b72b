"""Which pod goes next, and when a rejected pod is tried again."""
