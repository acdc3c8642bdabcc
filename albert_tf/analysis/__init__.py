"""What a model costs, and what its layers do."""
