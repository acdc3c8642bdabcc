"""Runs `python -m MODULE` again and again without importing TensorFlow each time (five seconds of a CPU).

Started once; imports what all commands need, and none of their modules; then forks a child for every line of JSON on
stdin, and answers on stdout with the child's status. No library has started threads of its own by then, and nothing
has been computed, so the child is as good as a new interpreter. With `without_tensorflow` as its argument it imports
NumPy and Numba alone, and its children can import neither TensorFlow nor Keras.
"""

import gc
import json
import os
import runpy
import signal
import sys
import time

import numba  # noqa: F401

if "without_tensorflow" in sys.argv:
    sys.modules |= {"tensorflow": None, "keras": None}
else:
    import tfrecords.base.machine.quiet_tensorflow  # noqa: F401, I001  (first of all)

    import tensorflow_text  # noqa: F401

    import albert_tf  # noqa: F401


def become(request):
    """Makes this child what the shell would have started; returns for the module to run."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    for number, name in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.path.insert(0, request["cwd"])
    sys.argv = [request["module"], *request["arguments"]]
    sys.orig_argv = [sys.executable, "-m", *sys.argv]
    if request["eagerly"]:
        sys.modules["tensorflow"].config.run_functions_eagerly(True)


def status_of(child, timeout):
    """Its exit status, minus the signal that ended it, or None when it had to be ended."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main():
    """Answers requests; in a child, returns the name of the module to run."""
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            become(request)
            return request["module"]
        print(json.dumps(status_of(child, request["timeout"])), flush=True)
    return None


if __name__ == "__main__" and (module := main()):
    runpy.run_module(module, run_name="__main__", alter_sys=True)
