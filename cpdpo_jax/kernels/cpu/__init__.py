"""What exists only for speed on a CPU; see README.md beside this file."""
