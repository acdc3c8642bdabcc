"""A gateway with the routes of other encoder servers' clients, for any TensorFlow Serving, without TensorFlow."""
