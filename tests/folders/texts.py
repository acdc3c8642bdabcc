"""The texts that folders are asked for."""

TEXTS = ["the good film is not bad", "Paris runs in the Café , and the dogs !", "a", "book : 20 films in paris . " * 5]
SECONDS = ["a dog", "the book", "Paris is good", "bad"]
