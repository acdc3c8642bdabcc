"""TensorFlow Serving's gRPC and REST contract on the pip-installed TensorFlow: `python -m serving.model_server`.

Defaults, status codes and the answers' bytes are those of tensorflow_model_server 2.20. So are error messages as far as
its contract was written down (model choice, Predict, Classify, Regress, batching, loading, the REST parser's); elsewhere,
and in the order of names or how much of a value is quoted, the words may differ. Nothing should depend on them.
"""

import tfrecords  # noqa: F401  quiets TensorFlow's start-up log; must come before TensorFlow
