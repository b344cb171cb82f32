"""What is typed most: examples at the end of each command's help, and of its man page."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["EXAMPLES", "epilog_of"]

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "run": (
        "dovetail run commands.txt",
        "dovetail run commands.txt --on cpu,gpu --retries 2",
        "dovetail run -- python fit.py",
        "dovetail run --retry-failed last",
        "dovetail run commands.txt --then ./report.sh",
        "dovetail run --each lr=0.1,0.01 --each n=1..5 -- python fit.py {lr} {n}",
    ),
    "submit": (
        "dovetail submit -- python fit.py",
        "dovetail submit -c 4 --memory 8GB -t 2h -- python fit.py",
        "dovetail submit --array 0-9%2 job.sh",
        "dovetail submit --depends afterok:12 commands.txt",
    ),
    "queue": (
        "dovetail queue",
        "dovetail queue train --json",
        "dovetail queue --since 2d --failed",
        "dovetail queue -o id,state,command",
    ),
    "logs": ("dovetail logs last -f", "dovetail logs 12_3 --err"),
    "wait": ("dovetail wait 12,15-18", "dovetail wait train --timeout 2h"),
    "cancel": ("dovetail cancel 12", "dovetail cancel train", "dovetail cancel all"),
    "explain": ("dovetail explain", "dovetail explain 12", "dovetail explain commands.txt --on cpu,gpu"),
    "map": (
        "dovetail map --cpu 'resize {in} {out}' photos/*.jpg --out small",
        "dovetail map --cpu './f {in} {out}' --gpu './g {in} {out}' *.npy --out new",
    ),
    "serve": (
        "dovetail serve",
        "dovetail serve --policy lookahead --user-limit 8",
        "dovetail serve --drain",
    ),
    "info": ("dovetail info", "dovetail info 12", "dovetail info train --json"),
    "nodes": ("dovetail nodes",),
    "hold": ("dovetail hold 12", "dovetail hold train"),
    "release": ("dovetail release 12", "dovetail release all"),
    "requeue": ("dovetail requeue 12", "dovetail requeue --failed", "dovetail requeue --failed train"),
    "update": (
        "dovetail update 12 --walltime 2h",
        "dovetail update train --priority 5 --on cpu,gpu",
        "dovetail update 12_0-4 --depends afterok:11",
        "dovetail update 12 --depends none",
    ),
    "move": ("dovetail move 12 --first", "dovetail move 12 --after 15"),
    "reserve": ("dovetail reserve --gpus 2 --from 14:00 --for 3h", "dovetail reserve --list"),
    "pause": ("dovetail pause", "dovetail pause --kind gpu"),
    "resume": ("dovetail resume", "dovetail resume --kind gpu"),
    "top": ("dovetail top",),
    "whatif": ("dovetail whatif --policy sjf", "dovetail whatif --cluster 1x16cpu+2gpu"),
    "forecast": (
        "dovetail forecast --slurm --user ana",
        "dovetail forecast --slurm --if 'sbatch -N2 -t 1:00:00'",
    ),
    "dashboard": ("dovetail dashboard", "dovetail dashboard --no-browse"),
    "token": ("dovetail token add ana", "dovetail token list"),
    "simulate": (
        "dovetail simulate commands.txt --cluster 4x8cpu",
        "dovetail simulate log.swf.gz --policy easy --report out",
    ),
    "compare": (
        "dovetail compare last --policy history,best-device",
        "dovetail compare last --cluster 1x8cpu+1gpu --cluster 1x8cpu+2gpu",
        "dovetail compare log.swf.gz --policy fcfs,easy,conservative --by user",
    ),
    "policies": ("dovetail policies",),
    "workload": (
        "dovetail workload describe log.swf.gz",
        "dovetail workload scale log.swf.gz heavier.swf --load 0.9",
    ),
    "replay": ("dovetail replay last",),
    "split": ("dovetail split --tasks 9 --cpu-slots 2 --gpu-slots 1 \\\n    --cpu-time 3 --gpu-time 1",),
    "schema": ("dovetail schema --out schemas",),
    "history": (
        "dovetail history list",
        "dovetail history predict python:fit.py rows=1e6",
        "dovetail history forget python:fit.py",
    ),
    "model": ("dovetail model show python:fit.py", "dovetail model error"),
    "memory": ("dovetail memory", "dovetail memory last --svg memory.svg"),
    "devices": ("dovetail devices", "dovetail devices --json"),
    "device-server": (
        "dovetail device-server --device cuda:0",
        "dovetail device-server --device cuda:0 --listen n1:7321 --token-file token",
    ),
    "mcp": ("dovetail mcp", "dovetail mcp --service https://box:7321 --label fixer --most 4"),
    "runs": ("dovetail runs", "dovetail runs --prune 30d"),
    "recover": ("dovetail recover", "dovetail recover --stop"),
}
"""Lines to type, by the command."""


def epilog_of(name: str) -> str | None:
    """The end of a command's help; none where nothing is known of it."""
    if name not in EXAMPLES:
        return None
    return "\b\nExamples:\n" + "\n".join(
        f"  {line}" for example in EXAMPLES[name] for line in example.split("\n")
    )
