"""TensorFlow Serving's gRPC and REST contract on the pip-installed TensorFlow: `python -m serving.model_server`.

Every exact message and default in this package is that of tensorflow_model_server 2.20.
"""

import tfrecords  # noqa: F401  quiets TensorFlow's start-up log; must come before TensorFlow
