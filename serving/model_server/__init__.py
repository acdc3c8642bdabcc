"""TensorFlow Serving's gRPC and REST contract on the pip-installed TensorFlow: `python -m serving.model_server`.

Defaults, status codes and the answers' bytes are those of tensorflow_model_server 2.20. So are error messages where its
contract was written down (choice of the model, Predict, Classify, Regress, batching, loading, the REST parser).
Elsewhere, and in the order of names or the length of a quoted value, the words may differ.
"""

import tfrecords  # noqa: F401  quiets TensorFlow's start-up log; must come before TensorFlow
