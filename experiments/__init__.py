"""Claims about ALBERT as tables of runs: a settings file a row, a command a table."""
