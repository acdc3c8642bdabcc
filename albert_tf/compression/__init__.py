"""From a large encoder to a small one: factorise, share, prune, distil, and say what was lost."""
