"""That what `make dist` built holds what it should, and nothing else.

python tools/check_dist.py dist
"""

from __future__ import annotations

import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

BESIDE = ("dovetail_integrations", "dovetail_lab", "dovetail_ray", "dovetail_remote", "dovetail_slurm")
TOP = {"dovetail_scheduler": {"dovetail"}} | {name: {name} for name in BESIDE}
"""The packages at the top of each wheel."""
SHARED = (
    "share/man/man1/dovetail.1",
    "share/man/man1/dovetail-submit.1",
    "share/systemd/user/dovetail.service",
)
SHARED += ("share/bash-completion/completions/dovetail", "share/zsh/site-functions/_dovetail")
SHARED += ("share/fish/vendor_completions.d/dovetail.fish",)


def wheel_faults(path: Path) -> list[str]:
    """What is wrong with a wheel, a sentence each."""
    name = path.name.split("-")[0]
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        about = Parser().parsestr(
            wheel.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
        )
    packages = {n.partition("/")[0] for n in names if "/" in n and ".d" not in n.partition("/")[0][-11:]}
    packages -= {n for n in packages if n.endswith((".dist-info", ".data"))}
    faults = [] if packages == TOP[name] else [f"holds the packages {sorted(packages)}"]
    faults += [f"holds {n}" for n in names if n.endswith(".pyc") or "/tests/" in n]
    if name not in BESIDE:
        faults += [
            f"lacks {one}" for one in SHARED if not any(n.endswith(f".data/data/{one}") for n in names)
        ]
        faults += [f"lacks {one}" for one in ("dovetail/py.typed",) if one not in names]
        faults += [
            f"its metadata lack {key}" for key in ("Project-URL", "Author", "Classifier") if key not in about
        ]
    return faults


def source_faults(path: Path) -> list[str]:
    """What is wrong with a source archive."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    faults = [f"lacks {one}" for one in ("pyproject.toml", "README.md", "LICENSE") if one not in names]
    return faults + [f"holds {name}" for name in names if name.startswith((".venv", ".git/", "dist/"))]


def main(folder: Path) -> int:
    """Look at all; the exit status."""
    built = sorted(folder.glob("*.whl")) + sorted(folder.glob("*.tar.gz"))
    faults = [
        f"{p.name} {f}" for p in built for f in (wheel_faults if p.suffix == ".whl" else source_faults)(p)
    ]
    for fault in [*faults, *([] if built else [f"{folder} holds nothing that was built"])]:
        print(fault, file=sys.stderr)
    return int(bool(faults) or not built)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
