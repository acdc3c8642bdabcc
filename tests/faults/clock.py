"""`python -m tests.faults.clock MODULE ARGUMENTS`: runs a module, whose clock goes back by an hour at SIGUSR1."""

import runpy
import signal
import sys
import time

_real, _real_ns, _offset = time.time, time.time_ns, 0


def _time():
    # gRPC hands its deadlines to C code, whose clock stays: a machine's clock goes back for both.
    of_grpc = sys._getframe(1).f_globals.get("__name__", "").startswith("grpc")
    return _real() + (0 if of_grpc else _offset)


def _go_back(*_):
    global _offset
    _offset = -3600


if __name__ == "__main__":
    time.time = _time
    time.time_ns = lambda: _real_ns() + _offset * 10**9
    signal.signal(signal.SIGUSR1, _go_back)
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
