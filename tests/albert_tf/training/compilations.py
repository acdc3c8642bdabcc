"""`python compilations.py FLAGS`: run_finetuning under JAX, then how many programs XLA compiled, and steps a second."""

import sys
import time

import jax

compiled, steps = [], []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(seconds) if event.endswith("backend_compile_duration") else None
)

from albert_tf.run_finetuning import run  # noqa: E402
from albert_tf.training import loop  # noqa: E402

record = loop.TrainingReport.step


def step(self, running):
    record(self, running)
    running()  # Waits for the step.
    steps.append((time.monotonic(), len(compiled)))


loop.TrainingReport.step = step
started = time.monotonic()
try:
    run()
finally:
    first, last = steps[len(steps) // 2], steps[-1]
    print(f"{len(compiled)} compilations", file=sys.stderr)
    print(f"{last[1] - first[1]} compilations in the last {len(steps) - len(steps) // 2 - 1} steps", file=sys.stderr)
    print(f"{steps[-1][0] - started:.1f} s to the end of step {len(steps)}, ", end="", file=sys.stderr)
    print(
        f"{(last[0] - first[0]) / max(1, len(steps) - len(steps) // 2 - 1):.3f} s a step of the last", file=sys.stderr
    )
