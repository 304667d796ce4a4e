"""Runs commands with the Python SDK in the sandbox BOX: each line on stdin is how many to run. It prints their times, in ms."""

import json
import os
import sys
import time

from hutch import Hutch

with Hutch() as hutch:
    box = hutch.sandbox(os.environ["BOX"])
    print("ready", flush=True)
    for line in sys.stdin:
        took = []
        for _ in range(int(line)):
            began = time.perf_counter()
            result = box.exec(os.environ["PROGRAM"])
            took.append(1000 * (time.perf_counter() - began))
            if result.exit_code != 0:
                raise SystemExit(f"exit code {result.exit_code}")
        print(json.dumps(took), flush=True)
