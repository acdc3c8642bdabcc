"""TensorFlow Serving's gRPC and REST API on the pip-installed TensorFlow: `python -m serving.model_server`.

Defaults, status codes, the answers' bytes and most error messages equal those of tensorflow_model_server 2.20.
"""

import tfrecords  # noqa: F401  quiets TensorFlow's start-up log; must come before TensorFlow
