"""Stored runs: configuration, blocks, the run directory, loading and reporting."""
