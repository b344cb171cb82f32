"""The page of a lab's GPU box, followed from nothing: accounts, unit, commands, as they stand there.

Root's part is done in a mount namespace of its own, where ``/etc``, ``/srv``, ``/root`` and
``/usr/local/bin`` are copies or empty: nothing of it is left on this machine. What is not as on the page:
`pip install` of a release becomes a link to this checkout, `sudo` is a few lines (it may not be installed),
systemd's part is done by hand, and NVIDIA's library is the stand-in.
"""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from gpu_box import GB, GpuBox, library_folder
from shown_commands import blocks

from dovetail.model import Cluster
from dovetail.model.node import NVLINK, SWITCH

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "gpu-box.md"
pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]

NEEDS = ("unshare", "useradd", "groupadd", "usermod", "runuser")
TRAIN = """
import os, time
print("on", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
time.sleep(0.2)
"""


def lines_after(prompt: str) -> list[str]:
    """What the page has typed at a prompt, in order, without the comments."""
    found = [line for block in blocks(PAGE.read_text()) for line in block.splitlines()]
    return [re.sub(r"\s{2,}#.*", "", one.removeprefix(prompt)) for one in found if one.startswith(prompt)]


def unit_of_page() -> str:
    """The systemd unit of the page."""
    (unit,) = [block for block in blocks(PAGE.read_text()) if block.startswith("[Unit]")]
    return unit


def why_not() -> str:
    """What lacks for this on this machine; empty where nothing does."""
    missing = [name for name in NEEDS if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    if os.geteuid():
        return "needs root, in a mount namespace of its own"
    done = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "needs mount namespaces"


SETUP = """
set -eu
cd /
mount --make-rprivate /
mkdir -p $WORK/etc $WORK/python && cp -a /etc/. $WORK/etc/ && mount --bind $WORK/etc /etc
mount --bind $PYTHON $WORK/python
mount -t tmpfs -o mode=755 none /root && mkdir -p $PYTHON && mount --bind $WORK/python $PYTHON
mount -t tmpfs -o mode=755 none /srv
mount -t tmpfs -o mode=755 none /home
mount -t tmpfs -o mode=755 none /usr/local/bin
printf '#!/bin/sh\\nshift; who=$1; shift; exec runuser -u "$who" -- "$@"\\n' > /usr/local/bin/sudo
chmod 755 /usr/local/bin/sudo && ln -s $PYTHON/bin/python3 /usr/local/bin/python
cp -r $WORK/box /srv/box && cp -r $LIBRARY /srv/lib && chmod -R a+rwX /srv/box /srv/lib
export PATH=/usr/local/bin:$PYTHON/bin:$PATH
export NVML_BOX=/srv/box LD_LIBRARY_PATH=/srv/lib DOVETAIL_CLAIMS=/srv/claims
mkdir -m 1777 /srv/claims
useradd --create-home ana && useradd --create-home ben
"""
LINK = r"""
for site in /srv/dovetail/venv/lib/python3*/site-packages; do printf "%s\n" $SITES > $site/checkout.pth; done
printf "#!/srv/dovetail/venv/bin/python3\nfrom dovetail.start import main\nmain()\n" \
    > /srv/dovetail/venv/bin/dovetail
chmod 755 /srv/dovetail/venv/bin/dovetail
"""


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "all is there")
def test_a_labs_box_from_nothing(tmp_path: Path) -> None:
    box = GpuBox(tmp_path / "box")
    for _ in range(4):
        box.add(40 * GB)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "dovetail.service").write_text(unit_of_page())
    root = lines_after("# ")
    assert any("useradd" in line for line in root)
    assert sum("pip install" in line for line in root) == 1
    steps = [LINK if "pip install" in line else line for line in root]
    (profile,) = [
        line
        for block in blocks(PAGE.read_text())
        for line in block.splitlines()
        if line.startswith("export DOVETAIL_SERVICE")
    ]
    command = re.search(r"ExecStart=(.*?)\nKillMode", unit_of_page(), re.DOTALL)
    assert command is not None
    serve = command[1].replace("\\\n", " ")
    assert re.search("^User=dovetail$", unit_of_page(), re.MULTILINE)
    ana = [line for line in lines_after("ana$ ") if not line.startswith("dovetail top")]  # it needs a screen
    assert any("reserve" in line for line in ana)
    box_lines = [line for line in lines_after("box$ ") if re.match("dovetail (devices|submit|queue)", line)]
    assert any("--gpu-mem" in line for line in box_lines)
    # A shell needs a terminal; one request is above every device, and refused.
    box_lines = [f"! {line}" if "50GB" in line else line for line in box_lines if "--interactive" not in line]
    script = [SETUP, *steps, f"echo '{profile}' > /etc/profile.d/dovetail.sh"]
    script += [
        "cp $WORK/dovetail.service /etc/systemd/system/dovetail.service",
        "if command -v systemd-analyze > /dev/null; then systemd-analyze verify dovetail.service; fi",
        f"runuser -u dovetail -g lab -- {serve} > /srv/log 2>&1 & service=$!",
        "trap 'kill $service; wait $service || :; cat /srv/log >&2' EXIT",
        "for _ in $(seq 600); do [ -S /srv/dovetail/socket ] && break; sleep 0.1; done",
        "cp $WORK/train.py /home/ana/train.py",
        *(f"runuser -u ana -- bash -lc 'cd && {line}'" for line in [*box_lines, *ana]),
        "runuser -u ana -- bash -lc 'dovetail wait all'",
        "runuser -u ana -- bash -lc 'dovetail queue --ended -o state,user,devices --parsable'",
        "runuser -u ben -- bash -lc 'dovetail queue; dovetail reserve --list'",
    ]
    sites = [str(Path(__file__).parents[2] / "src"), *site.getsitepackages(), *extra_sites()]
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", "\n".join(script)],
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/root",
            "WORK": str(tmp_path),
            "LIBRARY": str(library_folder()),
            "PYTHON": sysconfig.get_config_var("prefix"),
            "SITES": " ".join(dict.fromkeys(sites)),
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "COMPLETED|ana|" in done.stdout
    assert "Reservation 1: " in done.stdout
    assert "needs 50 GB of memory on a gpu, and none has more than 40 GB" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_cluster_files_of_the_page_are_read(tmp_path: Path) -> None:
    files = [block for block in blocks(PAGE.read_text()) if block.startswith("[[node]]")]
    nodes = []
    for text in files:
        (tmp_path / "box.toml").write_text(text)
        nodes += Cluster.parse(str(tmp_path / "box.toml")).nodes
    mps, near = nodes
    assert [device.mps for device in mps.devices] == [True] * 4
    assert [device.near[:1] for device in near.devices] == [(0,), (0,), (16,), (16,)]
    assert dict(near.devices[2].links) == {0: SWITCH, 1: SWITCH, 3: NVLINK}


def extra_sites() -> list[str]:
    """What the paths of this interpreter have beside its own: a checkout's packages, and what they need."""
    return [path for path in sys.path if path.endswith(("/src", "/site-packages"))]
