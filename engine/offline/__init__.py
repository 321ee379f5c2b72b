"""The engine without a cluster: judge a pod, run policy tests, compare recorded answers."""
