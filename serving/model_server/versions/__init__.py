"""Model versions: found, loaded, run."""
