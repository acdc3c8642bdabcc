"""What a loss has to know of the devices that share its batch."""

import keras


def share_of_replica(loss):
    """A replica's share of a mean loss, so that the shares of all add up to the mean.

    Keras's own losses do the same within a `tf.distribute` strategy; elsewhere a loss is left as it is.
    """
    if keras.backend.backend() != "tensorflow":
        return loss
    import tensorflow as tf

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    return loss / replicas if replicas > 1 else loss
