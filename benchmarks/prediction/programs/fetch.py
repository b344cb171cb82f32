"""Waits as a download would: hardly any CPU time, however long it takes."""

from __future__ import annotations

import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--blocks", type=int, required=True)
arguments = parser.parse_args()
for _ in range(arguments.blocks):
    time.sleep(0.02)
