"""Extensions of the encoder, one file each. `albert_tf.extension` lists them; the core imports none."""
