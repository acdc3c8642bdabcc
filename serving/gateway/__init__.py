"""A gateway that speaks the HTTP APIs of other encoder servers, for any TensorFlow Serving."""
