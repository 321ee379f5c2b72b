"""kube-scheduler's own plugins as a program that answers scenarios; see `main.go`."""
