"""Extensions of the encoder, one file each, listed in `albert_tf.registry`; the core imports none."""
