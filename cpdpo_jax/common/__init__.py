"""Shared by all packages: types, atomic files, text, plugins and the machine."""
