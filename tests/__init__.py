"""The tests, mirroring `engine`; `builders` makes the objects they are about."""
