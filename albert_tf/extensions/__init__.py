"""Extensions of the encoder, listed in `albert_tf.config.registry`; the core imports none."""
