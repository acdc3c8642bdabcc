"""TensorFlow Serving's gRPC and REST contract on the pip-installed TensorFlow: `python -m serving.model_server`.

Defaults, status codes, the answers' bytes and most error messages are those of tensorflow_model_server 2.20. Messages
may differ where its contract was not written down (outside of the choice of the model, Predict, Classify, Regress,
batching, loading and the REST parser), in the order of names and in the length of a quoted value.
"""

import tfrecords  # noqa: F401  quiets TensorFlow's start-up log; must come before TensorFlow
