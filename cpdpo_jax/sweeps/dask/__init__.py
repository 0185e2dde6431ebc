"""Runs blocks on dask workers."""
