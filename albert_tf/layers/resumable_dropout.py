"""Dropout that draws after loading what it would have drawn had it never been saved."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="albert_tf")
class ResumableDropout(keras.layers.Dropout):
    """keras.layers.Dropout whose file also holds how far its seed generator has counted; Keras leaves that out."""

    def save_own_variables(self, store):
        if self.rate:
            store["seed_generator_state"] = ops.convert_to_numpy(self.seed_generator.state)

    def load_own_variables(self, store):
        if self.rate and "seed_generator_state" in set(store.keys()):
            self.seed_generator.state.assign(store["seed_generator_state"])
