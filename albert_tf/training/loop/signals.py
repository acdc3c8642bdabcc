import os
import signal
import sys
import threading
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Context that records Ctrl-C and SIGTERM in `asked`; a second signal ends the process at once.

    Outside the main thread it changes nothing.
    """

    def __init__(self):
        self.asked: int | None = None
        self._before = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def end(self) -> None:
        """Ends the process as the recorded signal would have; without one, returns."""
        if self.asked == signal.SIGTERM:
            sys.exit(128 + signal.SIGTERM)
        if self.asked is not None:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        again, self.asked = self.asked is not None, number
        if again:
            self.end()
        # `print` may be what was interrupted.
        os.write(2, b"\nsaving after this step; once more: stop at once\n")
