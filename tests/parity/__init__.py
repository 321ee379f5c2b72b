"""Our answers beside those of kube-scheduler's own plugins, on clusters that nobody thought of."""
