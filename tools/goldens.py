"""Goldens: what the command line prints, before and after a change of the house.

    python tools/goldens.py make FOLDER    every policy on every sample, in every mode; studies; help; schemas
    python tools/goldens.py compare A B    name every file that differs; exit status 1 where one does

Times that were measured (of decisions, of the simulation, of a solver) are taken out; all else is kept.
Traces are looked for beside the project (../shared/traces) and left out where they are not.
"""

from __future__ import annotations

import contextlib
import filecmp
import io
import json
import re
import sys
from pathlib import Path

from dovetail.cli.main import status_of
from dovetail.plugins import list_policies

HERE = Path(__file__).resolve().parent.parent
TRACES = HERE.parent / "shared" / "traces"
MEASURED = re.compile(r"^(decision_seconds_.*|simulation_seconds|seconds|cpu_seconds)$")

SAMPLES: dict[str, list[str]] = {
    "single-node": [str(HERE / "examples/single-node/jobs.toml"), "--cluster", "2x4cpu+1gpu"],
    "moldable": [str(HERE / "examples/moldable/jobs.toml"), "--cluster", "4x8cpu+1gpu"],
    "gregg": ["published:gregg-table2", "--cluster", "1x1cpu+1gpu"],
    "ravi-single": ["published:ravi-single", "--cluster", "1x8cpu+1gpu"],
    "ravi-multi": ["published:ravi-multi", "--cluster", "16x8cpu+1gpu"],
    "markthub": ["published:markthub?jobs=250"],
    "rigid": ["synthetic:rigid?jobs=400&nodes=64&load=0.9"],
    "lublin": ["synthetic:lublin?jobs=400&nodes=64"],
    "shared": ["synthetic:lublin?jobs=300&nodes=64", "--cluster", "16x4cpu"],
    "kth": [str(TRACES / "kth-sp2-1996-2.1-cln.first8000.swf.gz")],
    "nasa": [str(TRACES / "nasa-ipsc-1993-3.1-cln.first6000.swf.gz")],
    "hpc2n": [str(TRACES / "hpc2n-2002-2.1.first3170.swf.gz")],
    "hpc2n-overrun": [str(TRACES / "hpc2n-2002-2.1.first3170.swf.gz"), "--overrun", "run"],
    "philly": [
        "philly:" + str(TRACES / "philly_jobs_2017-10-02_2017-10-08.csv.gz"),
        "--cluster",
        "60x24cpu+8gpu",
    ],
}
TRACES_ONLY = {"conservative", "easy", "easy?order=sjf", "fcfs", "sjf"}
SLOW = {"rigid", "lublin", "kth", "nasa", "hpc2n", "hpc2n-overrun", "philly", "shared"}
HELP = [
    "run",
    "simulate",
    "compare",
    "submit",
    "serve",
    "map",
    "history",
    "model",
    "workload",
    "pack",
    "bench",
]


def scrubbed(value: object) -> object:
    """The JSON value with every measured time replaced."""
    if isinstance(value, dict):
        return {
            key: "measured" if MEASURED.match(key) and entry is not None else scrubbed(entry)
            for key, entry in value.items()
        }
    return [scrubbed(entry) for entry in value] if isinstance(value, list) else value


def said(arguments: list[str]) -> str:
    """Exit status and output of a command, run in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = status_of(arguments)
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 1
    text = out.getvalue()
    with contextlib.suppress(ValueError):
        text = json.dumps(scrubbed(json.loads(text)), indent=1)
    return f"{status}\n{text}\n{err.getvalue()}".replace(str(HERE), "HERE").replace(str(TRACES), "TRACES")


def make(folder: Path) -> None:
    """Write all goldens into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted({info.name for info in list_policies()} | TRACES_ONLY)
    for sample, arguments in SAMPLES.items():
        path = Path(arguments[0].rpartition(":")[2])
        if "shared" in path.parts and not path.exists():
            continue
        for name in [name for name in names if sample not in SLOW or name in TRACES_ONLY | {"lookahead"}]:
            if sample in ("kth", "nasa", "hpc2n", "philly", "hpc2n-overrun") and name == "lookahead":
                continue
            for mode in ("auto", "off"):
                stem = re.sub(r"\W", "_", f"{sample}.{name}.{mode}")
                csv = folder / f"{stem}.csv"
                limit = ["--policy", f"{name}?time_limit=1"] if name == "optimal" else ["--policy", name]
                command = ["simulate", *arguments, *limit, "--compiled", mode, "--json", "--csv", str(csv)]
                (folder / f"{stem}.json").write_text(said(command).replace(str(folder), "FOLDER"))
        if sample not in ("philly", "kth", "nasa"):
            journal = folder / f"{sample}.jsonl"
            said(["simulate", *arguments, "--policy", "history", "--journal", str(journal), "--json"])
            journal = folder / f"{sample}.easy.jsonl"
            said(["simulate", *arguments, "--policy", "easy", "--journal", str(journal), "--json"])
    for study, options in {
        "gregg": [], "aupy": ["--seeds", "2"], "markthub": ["--jobs", "200", "--seeds", "1"],
        "ravi-single": ["--seeds", "2"], "ravi-multi": ["--seeds", "1"], "shirahata": [],
    }.items():  # fmt: skip
        (folder / f"reproduce.{study}.json").write_text(said(["reproduce", study, *options, "--json"]))
    for command in HELP:
        (folder / f"help.{command}.txt").write_text(said([command, "--help"]))
    (folder / "help.txt").write_text(said(["--help"]))
    said(["schema", "--out", str(folder / "schemas")])
    with contextlib.suppress(ImportError):
        from dovetail.service.http import app  # type: ignore[attr-defined]

        (folder / "openapi.json").write_text(json.dumps(app.openapi(), indent=1, sort_keys=True))


def compare(before: Path, after: Path) -> int:
    """Name what differs; 0 where nothing does."""
    names = sorted({p.relative_to(f) for f in (before, after) for p in f.rglob("*") if p.is_file()})
    same = 0
    for name in names:
        one, other = before / name, after / name
        if one.exists() and other.exists() and filecmp.cmp(one, other, shallow=False):
            same += 1
        else:
            print(f"{'differs' if one.exists() and other.exists() else 'on one side only'}: {name}")
    print(f"{same} of {len(names)} are the same")
    return 0 if same == len(names) else 1


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        make(Path(sys.argv[2]))
    elif len(sys.argv) == 4 and sys.argv[1] == "compare":
        sys.exit(compare(Path(sys.argv[2]), Path(sys.argv[3])))
    else:
        sys.exit(__doc__)
