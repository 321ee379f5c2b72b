"""The policies as an extender of a stock kube-scheduler, over HTTP."""
