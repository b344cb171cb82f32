"""The former name of `dovetail.client.call`, by which jobs that were queued before the move call it."""

from runpy import run_module

if __name__ == "__main__":
    run_module("dovetail.client.call", run_name="__main__", alter_sys=True)
