"""Checkpoints whose optimizer added up the gradients of a step's parts itself, as pre-training's once did."""

import keras


def without_accumulators(model: keras.Model) -> None:
    """Gives a model the optimizer it would have had if the steps of training had added the parts up all along.

    Without effect on an optimizer that accumulates nothing. No part of a step must be under way.
    """
    optimizer = model.optimizer
    parts = optimizer.gradient_accumulation_steps
    if not parts:
        return
    store = {}
    optimizer.save_own_variables(store)
    accumulators = {id(variable) for variable in optimizer._accumulated_gradients}
    kept = [
        store[str(n)]
        for n, variable in enumerate(optimizer.variables)
        if id(variable) not in accumulators and str(n) in store
    ]
    kept[0] = kept[0] // parts  # Iterations, which Keras counts in parts.
    config = model.get_compile_config()
    config["optimizer"]["config"]["gradient_accumulation_steps"] = None
    model.compile_from_config(config)
    model.optimizer.load_own_variables({str(number): value for number, value in enumerate(kept)})
