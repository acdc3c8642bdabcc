"""The routes that clients of other encoder servers speak, in front of any TensorFlow Serving, without TensorFlow."""
