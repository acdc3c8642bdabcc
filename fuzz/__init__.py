"""Coverage-guided fuzzing of everything that reads bytes of others: `python -m fuzz.run --minutes=60`."""
