"""The originals of fair sharing as programs that answer cases; see `main.go`."""
