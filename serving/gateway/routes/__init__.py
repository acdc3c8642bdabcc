"""What each route reads and answers."""
