// The Prometheus operator's custom resource definitions for the tests of the chart, pinned. Nothing is built from it.
module starsched.dev/tools/prometheus-operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
