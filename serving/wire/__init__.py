"""TensorFlow Serving's messages and tensors as bytes without TensorFlow, for client, benchmark and server."""
