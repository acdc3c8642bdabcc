"""TensorFlow Serving's messages and tensors as bytes, without TensorFlow: what client, benchmark and server share."""
