"""Extensions of the encoder, listed in `albert_tf.registry`; the core imports none."""
