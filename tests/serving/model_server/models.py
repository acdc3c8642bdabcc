"""Tiny SavedModels, written on the spot."""

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

tf1 = tf.compat.v1
# Those that NumPy or TensorFlow hands on; rows of the contract of requests name them.
DTYPES = (
    *("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool", "complex64", "complex128", "string"),
)


def export_half_plus_two(folder, bias=2.0):
    """y = x / 2 + bias as TF Serving's own test model has it: predict, classify and regress signatures.

    Examples carry x (float, scalar) and x2 (float, default 0); regress_x2_to_y reads x2.
    """
    with tf.Graph().as_default(), tf1.Session() as session:
        slope, intercept = tf1.Variable(0.5, name="a"), tf1.Variable(bias, name="b")
        serialized = tf1.placeholder(tf.string, [None], name="tf_example")
        features = tf.io.parse_example(
            serialized,
            {"x": tf.io.FixedLenFeature([1], tf.float32, 0.0), "x2": tf.io.FixedLenFeature([1], tf.float32, 0.0)},
        )
        x = tf.identity(features["x"], name="x")
        y = tf.add(slope * x, intercept, name="y")
        y2 = slope * features["x2"] + intercept + 1.0
        info = tf1.saved_model.build_tensor_info
        signature = tf1.saved_model.build_signature_def
        examples = {"inputs": info(serialized)}
        signatures = {
            "serving_default": signature({"x": info(x)}, {"y": info(y)}, "tensorflow/serving/predict"),
            "classify_x_to_y": signature(examples, {"scores": info(y)}, "tensorflow/serving/classify"),
            "regress_x_to_y": signature(examples, {"outputs": info(y)}, "tensorflow/serving/regress"),
            "regress_x2_to_y": signature(examples, {"outputs": info(y2)}, "tensorflow/serving/regress"),
        }
        session.run(tf1.global_variables_initializer())
        builder = tf1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
        builder.save()
    return folder


def export_function(folder, **signatures):
    """A TF2 SavedModel of tf.functions with input signatures."""
    module = tf.Module()
    module.functions = list(signatures.values())
    tf.saved_model.save(module, str(folder), signatures={k: f.get_concrete_function() for k, f in signatures.items()})
    return folder


def edited(version, edit):
    """The version after edit(its meta graph) has changed what the file says."""
    file = version / "saved_model.pb"
    saved_model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    edit(saved_model.meta_graphs[0])
    file.write_bytes(saved_model.SerializeToString())
    return version


def signature(*specs, **named):
    """tf.function with these inputs: a TensorSpec each, or its (shape, dtype) by its name."""
    return tf.function(input_signature=[*specs, *(tf.TensorSpec(*spec, name) for name, spec in named.items())])


def export_zoo(folder):
    """A signature for each kind of request that the contract of requests has a row for."""

    def identity(dtype):
        return signature(x=(None, tf.as_dtype(dtype)))(lambda x: {"y": tf.identity(x)})

    def halved(name, feature, bias):
        """As tf.saved_model.save writes those of half_plus_two: the method is predict, the input its own."""
        read = {feature: tf.io.FixedLenFeature([1], tf.float32, 0.0)}
        return signature(inputs=([None], tf.string))(
            lambda inputs: {name: tf.io.parse_example(inputs, read)[feature] / 2 + bias}
        )

    def label(inputs):
        rows = tf.shape(inputs)[0]
        return {"classes": tf.tile([["no", "yes"]], [rows, 1]), "scores": tf.tile([[0.25, 0.75]], [rows, 1])}

    scalar, numbers, texts = ([], tf.float32), ([None], tf.float32), ([None], tf.string)
    signatures = {name: identity(name) for name in DTYPES} | {
        "pair": signature(a=([None, None], tf.float32), b=texts)(
            lambda a, b: {"total": tf.reduce_sum(a, 1), "text": b, "raw_bytes": b}
        ),
        "mean": signature(x=numbers)(lambda x: {"y": tf.reduce_mean(x)}),
        "constant": signature()(lambda: {"a": tf.constant([1.0]), "b": tf.constant([2, 3])}),
        "fixed": signature(x=(None, tf.float32))(lambda x: {"y": 2.0}),
        "add": signature(p=scalar, q=scalar)(lambda p, q: {"y": p + q}),
        "label": signature(inputs=texts)(label),
        "classify": halved("scores", "x", 2.0),
        "regress": halved("outputs", "x", 2.0),
        "regress2": halved("outputs", "x2", 3.0),
        "reshape": signature(x=(None, tf.string), shape=([None], tf.int64))(
            lambda x, shape: {"y": tf.reshape(x, shape)}
        ),
        "number": signature(x=texts)(lambda x: {"y": tf.strings.to_number(x)}),
    }
    export_function(folder, **signatures)

    def edit(graph):
        graph.signature_def["add"].defaults["q"].CopyFrom(tf.make_tensor_proto(10.0))
        graph.signature_def["constant"].method_name = "my/method"

    return edited(folder, edit)


def export_held(folder):
    """Runs that end when a test says so, without a clock and without work for the processor.

    serving_default writes into the named pipes `begun` and `finish` of the folder that its text names: reading the one
    waits until it runs, reading the other lets it end. `stuck` waits for `release`, and can be cut off.
    """

    @signature(text=([None], tf.string))
    def held(text):
        with tf.control_dependencies([tf.io.write_file(text[0] + "/begun", "")]):
            finished = tf.io.write_file(text[0] + "/finish", "")
        with tf.control_dependencies([finished]):
            return {"embedding": tf.ones([tf.size(text), 2])}

    def gate():
        return tf.raw_ops.FIFOQueueV2(component_types=[tf.float32], shared_name="gate")

    @signature(x=([], tf.float32))
    def stuck(x):
        return {"y": x + tf.raw_ops.QueueDequeueV2(handle=gate(), component_types=[tf.float32])[0]}

    @signature(x=([], tf.float32))
    def release(x):
        with tf.control_dependencies([tf.raw_ops.QueueEnqueueV2(handle=gate(), components=[x])]):
            return {"y": tf.identity(x)}

    return export_function(folder, serving_default=held, stuck=stuck, release=release)
