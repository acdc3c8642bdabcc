"""What every room stands on: files, settings, scripts, processes; nothing of data or models."""
