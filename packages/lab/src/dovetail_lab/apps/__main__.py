"""Run one app and print one line of JSON: ``python -m dovetail.apps matmul --device cpu --n 1024``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from dovetail.errors import DovetailError
from dovetail.files.streams import whole_stream
from dovetail_lab.apps.registry import APPS, RAVI, run_app

PROGRAM = "dovetail.apps"


class _Parser(argparse.ArgumentParser):
    """Answers wrong use by one sentence, as Dovetail does everywhere."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{PROGRAM}: {message} (--help lists apps and options)\n")


def _parse_whole_number(text: str) -> int:
    """A whole number, also as ``1e6``."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
        if number.is_integer():
            return int(number)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"found {text!r}, expected a whole number")


def _make_parser() -> argparse.ArgumentParser:
    lines = [
        f"  {spec.name:15s} {spec.paper_name}; --n = {spec.n_means} (default {spec.sizes.medium})"
        for spec in (*APPS.values(), *RAVI.values())
    ]
    parser = _Parser(
        prog="python -m dovetail.apps",
        description="Run one benchmark app of Gregg 2011 or Ravi 2012 and print one line of JSON.",
        epilog="apps, and what --n counts:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("app", metavar="NAME", help="the app, one of the list below")
    parser.add_argument(
        "--device",
        default="cpu",
        help="cpu (NumPy/SciPy; default), opencl, opencl:TEXT (device with TEXT in its name or platform), "
        "cpu+opencl (both at once), cuda (CuPy or PyTorch), numpy (the array-API source), "
        "remote or remote:ADDRESS (a device elsewhere)",
    )
    parser.add_argument(
        "--n", type=_parse_whole_number, help="size: a count of elements or a side, see below"
    )
    parser.add_argument("--seed", type=_parse_whole_number, default=0, help="seed of the inputs (default 0)")
    parser.add_argument(
        "--repeat",
        type=_parse_whole_number,
        default=1,
        help="run that many times; times are totals (default 1)",
    )
    parser.add_argument(
        "--iterations",
        type=_parse_whole_number,
        help="of an app of Ravi 2012: sweeps, steps or queries (default: its usual)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the app that ``arguments`` name; return the exit status.

    2: bad input, or nowhere to write, with one sentence on stderr; 130: interrupted; 141: the reader of the
    output has left.
    """
    options = _make_parser().parse_args(arguments)
    try:
        result = run_app(
            options.app, options.device, options.n, options.seed, options.repeat, options.iterations
        )
        if os.environ.get("DOVETAIL_RANK", "0") == "0":
            print(json.dumps(result.as_dict()), flush=True)
    except DovetailError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        # Nothing more can be printed, not even what is still buffered when Python exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        print(f"{PROGRAM}: cannot write: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.stdout = whole_stream(sys.stdout)
    sys.exit(main())
