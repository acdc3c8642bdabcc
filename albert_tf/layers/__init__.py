"""The encoder. Read its files in this order.

block: one depth step, attention and feed-forward network, over the protocols Kernels and Rows.
depth: which blocks run at which step, and the loop over all steps.
weights: the Keras layers that hold the weights.
padded: kernels and rows of training, for batches padded to one length; the features of a batch.
encoder: AlbertEncoder, which joins them.

`albert_tf.config` describes an encoder; `albert_tf.registry` lists the extensions that change it.
"""
