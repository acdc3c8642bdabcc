"""Shared basics of all packages: files, settings, scripts, processes; nothing of data or models."""
