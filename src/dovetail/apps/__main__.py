"""Run one app and print one line of JSON: ``python -m dovetail.apps matmul --device cpu --n 1024``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from dovetail.apps.registry import APPS, run
from dovetail.errors import DovetailError


def _parser() -> argparse.ArgumentParser:
    lines = [
        f"  {spec.name:15s} {spec.paper_name}; --n = {spec.n_means} (default {spec.sizes.medium})"
        for spec in APPS.values()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m dovetail.apps",
        description="Run one benchmark app of Gregg 2011 and print one line of JSON.",
        epilog="apps, and what --n counts:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("app", metavar="NAME", help="the app, one of the list below")
    parser.add_argument(
        "--device",
        default="cpu",
        help="cpu (NumPy/SciPy; default), opencl, opencl:TEXT (device with TEXT in its name or platform), "
        "cuda (CuPy or PyTorch), numpy (the array-API source)",
    )
    parser.add_argument("--n", type=int, help="size: a count of elements or a side, see below")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs (default 0)")
    parser.add_argument(
        "--repeat", type=int, default=1, help="run that many times; times are totals (default 1)"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the app that ``arguments`` name; return the exit status (2: bad input, one sentence on stderr)."""
    options = _parser().parse_args(arguments)
    try:
        result = run(options.app, options.device, options.n, options.seed, options.repeat)
    except DovetailError as error:
        print(f"dovetail.apps: {error}", file=sys.stderr)
        return error.exit_status
    print(json.dumps(result.as_dict()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
