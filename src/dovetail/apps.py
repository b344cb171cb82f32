"""``python -m dovetail.apps NAME``: the benchmark apps of `dovetail_lab`, by the name that histories hold."""

import sys
from importlib.util import find_spec
from runpy import run_module

if __name__ == "__main__":
    if find_spec("dovetail_lab") is None:
        print(
            "dovetail.apps: the benchmark apps are in dovetail-lab, which is not installed", file=sys.stderr
        )
        sys.exit(2)
    run_module("dovetail_lab.apps", run_name="__main__")
