"""Which lines of policies their tests run."""
