"""The child process that runs policies, and the evaluator that talks to it."""
