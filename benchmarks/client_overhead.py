"""What our own parts cost: the client over a bare stub, answers' decoding, and the rate the generator keeps.

python -m benchmarks.client_overhead

The server is the benchmark's stand-in, which does no work, in a process of its own on the same machine.
"""

import numpy as np

from benchmarks.machine import machine_line
from benchmarks.stand_in import stand_in_process
from benchmarks.timing import median_ms, medians_in_turns
from serving.benchmark.load import LoadShare, constant_arrivals
from serving.benchmark.point import generator_effort, generator_lag
from serving.benchmark.workers import Workers
from serving.client import Client, Connection
from serving.wire import protos
from serving.wire.tensors import read_tensor

ROUNDS = 20
CALLS = 200
RATES = (1000, 2000, 3000, 4000, 5000, 6000)
SECONDS = 3.0


def main() -> None:
    print(machine_line())
    with stand_in_process() as target:
        client_over_stub(target)
        generator_rates(target)
    decoding()


def client_over_stub(target: str) -> None:
    """The same call, from arrays to arrays by the client and from bytes to bytes by the stub, in turns."""
    inputs = {"input_ids": np.ones((1, 128), np.int32), "lengths": np.array([128], np.int32)}
    with Client(target, "default") as client:
        request = client.request(inputs).SerializeToString()
        stub = client.raw_stub(protos.PREDICT)
        turns = {"client": lambda: client.predict(inputs), "stub": lambda: stub(request)}
        ours, bare = medians_in_turns(turns, ROUNDS, CALLS)
    print(f"1 x 128 tokens: client p50 {ours:.3f} ms, bare stub {bare:.3f} ms, added {ours - bare:.3f} ms")


def generator_rates(target: str) -> None:
    for processes in (1, 2):
        with Workers(Connection(target, attempts=1), processes) as workers:
            for rate in RATES:
                share = LoadShare([b""], [None], 10.0, 0.0, SECONDS, due=constant_arrivals(rate, SECONDS))
                samples = workers.run(share)
                lag = generator_lag(samples)
                late, latency = lag["lag_ms"], np.percentile(samples.latencies_ms, [50, 99])
                cpu_share, waiting_share = generator_effort(samples.effort)
                print(
                    f"open loop {rate}/s, {processes} generator processes: "
                    f"sent {rate * SECONDS / samples.sent.max():.0f}/s, "
                    f"CPU {cpu_share:.0%}, waited for it {waiting_share:.0%}, "
                    f"lag p50 {late['p50']:.2f} p99 {late['p99']:.2f} max {late['max']:.2f} ms, "
                    f"{late['late']} of {len(samples.due)} later than {late['limit']:.2f} ms, "
                    f"latency p50 {latency[0]:.2f} p99 {latency[1]:.2f} ms, "
                    f"{'valid' if lag['valid'] else 'FELL BEHIND'}"
                )


def decoding() -> None:
    """400,000 floats of a float_val answer: hidden states of 4 x 128 tokens."""
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    values = np.random.default_rng(0).normal(size=400_000).astype(np.float32)
    tensor = protos.TensorProto(dtype=1, float_val=values)
    tensor.tensor_shape.dim.add(size=len(values))
    theirs = tensor_pb2.TensorProto.FromString(tensor.SerializeToString())
    print(
        f"decode 400,000 floats: ours {median_ms(lambda: read_tensor(tensor), CALLS):.3f} ms, "
        f"tf.make_ndarray {median_ms(lambda: tf.make_ndarray(theirs), CALLS):.2f} ms"
    )


if __name__ == "__main__":
    main()
