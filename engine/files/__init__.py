"""Clusters in files: manifests, snapshots and policies as the records that decisions read."""
