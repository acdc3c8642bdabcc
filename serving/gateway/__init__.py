"""A gateway from the HTTP APIs of other encoder servers to any TensorFlow Serving."""
