"""The API server over HTTP: configuration, raw requests, errors."""
