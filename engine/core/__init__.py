"""What is decided: pure functions and state on plain data, with no I/O, clock or chance."""
