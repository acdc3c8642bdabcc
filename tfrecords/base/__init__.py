"""Shared basics of all packages: files, settings, scripts, processes."""
