"""Model servers without a model that answer, wait and fail by the number of the call."""

import itertools
import time

from tests.stand_in import constant_answer

ANSWER = constant_answer()


class Numbered:
    """After `seconds` answers what `answer(number of the call, context)` gives, or ANSWER where it gives nothing."""

    def __init__(self, answer=lambda number, context: None, seconds=0.0):
        self._answer, self._seconds, self._numbers, self.calls = answer, seconds, itertools.count(1), 0

    def __call__(self, request, context):
        self.calls = number = next(self._numbers)
        time.sleep(self._seconds)
        return self._answer(number, context) or ANSWER
