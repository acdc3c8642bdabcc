"""The cost of a model, and the behaviour of its layers."""
