"""TensorFlow Serving's messages and tensors without TensorFlow."""
