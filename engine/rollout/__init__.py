"""How policies come into force: from a source, through checks, tests and a trial, and back."""
