"""SQuAD 1.1 and 2.0: questions whose answers are spans of a passage."""
