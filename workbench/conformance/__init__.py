"""Our answers beside kube-scheduler's."""
