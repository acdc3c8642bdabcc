"""What the Python clients of the table do: `python calls.py PROGRAM ... < WHERE`; a line of JSON for each.

It runs where the clients are installed and albert-tf need not be. WHERE has the servers' addresses and the texts
(tests/clients/answers.py). A line is `{"program", "answer"}`, or `{"program", "error"}` with what the client raised.
The programs are in the files next to this one.
"""

import asyncio
import json
import logging
import os
import sys
import traceback
from inspect import iscoroutine

import calls_openai
import calls_servers
import calls_texts

# What would ask other machines while the libraries are imported.
os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "ANONYMIZED_TELEMETRY": "False", "HAYSTACK_TELEMETRY_ENABLED": "False",
    "HF_HUB_DISABLE_TELEMETRY": "1", "LANGSMITH_TRACING": "false"
}  # fmt: skip
PROGRAMS = vars(calls_openai) | vars(calls_servers) | vars(calls_texts)


class Where:
    """The addresses HOST:PORT `gateway`, `server`, `rest`; `texts`, `many`, `query`, `documents`, ..."""

    def __init__(self, values):
        self.__dict__.update(values)
        self.url = f"http://{self.gateway}"
        self.v1 = f"{self.url}/v1"


def called(program, at):
    """The line of a program."""
    try:
        answer = PROGRAMS[program](at)
        return {"program": program, "answer": asyncio.run(answer) if iscoroutine(answer) else answer}
    except Exception as error:
        text = f"{type(error).__name__}: {getattr(error, 'status_code', '')} {error}"
        return {"program": program, "error": text, "trace": traceback.format_exc()[-2000:]}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    where = Where(json.load(sys.stdin))
    for program in sys.argv[1:]:
        print("\n" + json.dumps(called(program, where)), flush=True)
