"""Kernels compiled by numba for CPUs and called from XLA's program; `calls.find` is the only entry point."""
