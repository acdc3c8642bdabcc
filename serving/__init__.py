"""Everything between weights and answers."""
