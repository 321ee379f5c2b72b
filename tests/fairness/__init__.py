"""Our policies of queues beside the originals' own code, on trees that nobody thought of."""
