"""Programs that only start another one: ``nice``, ``env``, ``mpirun``, ``docker run`` and their like.

What they start is the app; they neither hide nor split it. Their facts about the run itself are kept: the
number of processes of an MPI launcher, the image of a container.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from types import MappingProxyType

from dovetail.records import dataclass

ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Wrapper:
    """How the words between the wrapper and its program are read.

    ``values`` are options that take the next word, ``pairs`` two; where ``switches`` is given, every option
    that is not among them takes one. ``verbs`` are the sub-commands that start a program (none: the wrapper
    does). ``operands`` counts words before the program. ``assignments`` are skipped, an ``image`` comes
    before the program, ``scripts`` are given to Python. ``ranks`` and ``folder`` name options that give the
    number of processes and the working folder; ``module`` those that name a module of Python.
    """

    values: frozenset[str] = frozenset()
    pairs: frozenset[str] = frozenset()
    switches: frozenset[str] | None = None
    verbs: frozenset[str] = frozenset()
    operands: int = 0
    assignments: bool = False
    image: bool = False
    scripts: bool = False
    ranks: frozenset[str] = frozenset()
    folder: frozenset[str] = frozenset()
    module: frozenset[str] = frozenset()

    def count_option_words(self, option: str) -> int:
        """How many words follow the option."""
        if option in self.pairs:
            return 2
        # Programs with many options: it is shorter to list those without a value.
        if self.switches is not None:
            return int(option not in self.switches)
        return int(option in self.values | self.ranks | self.folder)


def word_set(text: str) -> frozenset[str]:
    """The words of a text, for tables of words that are long."""
    return frozenset(text.split())


_SIMPLE = _Wrapper()
_RUN = word_set("run")
_RANKS = word_set("-n -np --np --ntasks --n -c")
_MPI = _Wrapper(
    values=word_set(
        "-N -H -host --host -hostfile --hostfile -machinefile --machinefile -f -x -env -npernode --npernode "
        "-ppn -perhost -map-by --map-by -rank-by --rank-by -bind-to --bind-to -output-filename --rankfile "
        "--output-filename -rf -rankfile -path --path -prefix --prefix -launcher -iface"
    ),
    pairs=word_set("-mca --mca -gmca --gmca -genv"),
    ranks=_RANKS,
    folder=word_set("-wdir --wdir -wd --wd"),
)
_CONDA = _Wrapper(values=word_set("-n --name -p --prefix -a --attach"), verbs=_RUN, folder=word_set("--cwd"))
_DOCKER = _Wrapper(
    switches=word_set(
        "--rm --init --privileged --read-only --interactive --tty --detach --quiet --no-healthcheck "
        "--sig-proxy --oom-kill-disable --publish-all --replace -i -t -d -P -q"
    ),
    verbs=word_set("run exec"),
    image=True,
)
_APPTAINER = _Wrapper(
    values=word_set(
        "-B --bind --env --env-file -H --home --pwd --cwd -W --workdir -S --scratch -o --overlay --net "
        "--network --hostname --security --mount --app --apply-cgroups --fusemount --memory --cpus"
    ),
    verbs=word_set("exec run"),
    image=True,
)
_ENVIRONMENT = _Wrapper(verbs=_RUN, scripts=True)

_WRAPPERS: Mapping[str, _Wrapper] = MappingProxyType(
    {
        **dict.fromkeys(("nohup", "setsid", "command", "unbuffer", "catchsegv"), _SIMPLE),
        "nice": _Wrapper(values=word_set("-n --adjustment")),
        "exec": _Wrapper(values=word_set("-a")),
        "time": _Wrapper(values=word_set("-f --format -o --output")),
        "env": _Wrapper(values=word_set("-u --unset"), assignments=True, folder=word_set("-C --chdir")),
        "sudo": _Wrapper(
            values=word_set("-u --user -g --group -h --host -p --prompt -C -r --role -t --type -T"),
            assignments=True,
            folder=word_set("-D --chdir"),
        ),
        "ionice": _Wrapper(values=word_set("-c --class -n --classdata")),
        "timeout": _Wrapper(values=word_set("-k --kill-after -s --signal"), operands=1),
        "stdbuf": _Wrapper(values=word_set("-i --input -o --output -e --error")),
        "taskset": _Wrapper(operands=1),
        "chrt": _Wrapper(
            values=word_set("-T --sched-runtime -P --sched-period -D --sched-deadline"), operands=1
        ),
        "numactl": _Wrapper(
            values=word_set(
                "-i --interleave -p --preferred -m --membind -C --physcpubind -N --cpunodebind -w "
                "--weighted-interleave"
            )
        ),
        "xvfb-run": _Wrapper(values=word_set("-e --error-file -f --auth-file -n --server-num -p -s -w")),
        "cgexec": _Wrapper(values=word_set("-g")),
        "uv": _Wrapper(
            values=word_set(
                "--with --with-editable --with-requirements -p --python --extra --group --env-file --project "
                "--package -i --index-url --extra-index-url --index --default-index --cache-dir --only-group "
                "--no-group --no-extra -w --config-file --color --python-platform --refresh-package"
            ),
            verbs=_RUN,
            scripts=True,
            folder=word_set("--directory"),
            module=word_set("-m --module"),
        ),
        **dict.fromkeys(("poetry", "pipenv", "pdm", "hatch", "rye", "pixi"), _ENVIRONMENT),
        **dict.fromkeys(("conda", "mamba", "micromamba"), _CONDA),
        **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"), _MPI),
        "srun": _Wrapper(
            switches=word_set(
                "-l --label -v --verbose -u --unbuffered -s --oversubscribe -O --overcommit -K -Q --quiet -X "
                "--disable-status -Z --no-allocate -E --preserve-env --pty --exclusive --overlap --exact -k "
                "--no-kill -I -H --hold"
            ),
            ranks=word_set("-n --ntasks"),
            folder=word_set("-D --chdir"),
        ),
        "torchrun": _Wrapper(
            switches=word_set("--standalone --no-python --run-path"),
            scripts=True,
            ranks=word_set("--nproc-per-node --nproc_per_node"),
            module=word_set("-m --module"),
        ),
        **dict.fromkeys(("docker", "podman", "nerdctl"), _DOCKER),
        **dict.fromkeys(("apptainer", "singularity"), _APPTAINER),
    }
)


@dataclass(slots=True)
class Unwrapped:
    """A command without what starts it.

    ``started_by`` names the wrappers, outermost first; ``ranks`` is the number of processes where one gives
    it, ``image`` that of a container (whose files cannot be looked at from here), ``folders`` are working
    folders that wrappers change to, in order.
    """

    argv: Sequence[str]
    started_by: list[str] = field(default_factory=list)
    ranks: float | None = None
    image: str | None = None
    folders: list[str] = field(default_factory=list)


def unwrap_command(argv: Sequence[str]) -> Unwrapped:
    """The program that a command runs in the end, and its arguments. O(words).

    >>> unwrap_command(["nice", "-n", "10", "mpirun", "-np", "4", "./solve", "512"])
    Unwrapped(argv=['./solve', '512'], started_by=['nice', 'mpirun'], ranks=4.0, image=None, folders=[])
    """
    found = Unwrapped(list(argv))
    while found.argv:
        name = os.path.basename(found.argv[0])
        wrapper = _WRAPPERS.get(name)
        rest = None if wrapper is None else _inner_command(wrapper, found)
        if not rest:
            break
        found.argv = rest
        found.started_by.append(name)
    return found


def _inner_command(wrapper: _Wrapper, found: Unwrapped) -> list[str] | None:
    """What the wrapper starts; ``None`` where it starts nothing that can be recognised. Notes its options."""
    words = found.argv
    at = 1
    if wrapper.verbs:
        if len(words) < 2 or words[1] not in wrapper.verbs:
            return None
        at = 2
    seen = Unwrapped(())
    module: list[str] = []
    while at < len(words):
        word = words[at]
        if wrapper.assignments and ASSIGNMENT.fullmatch(word):
            at += 1
        elif word == "--":
            at += 1
            break
        elif not word.startswith("-") or word == "-":
            break
        else:
            name, value, at = _read_option(wrapper, words, at)
            if name in wrapper.module and value:
                module = ["python", "-m", value]
                break
            if name in wrapper.ranks and value.isdigit():
                seen.ranks = float(value)
            elif name in wrapper.folder:
                seen.folders.append(value)
    at += wrapper.operands
    if wrapper.image and at < len(words):
        seen.image = words[at]
        at += 1
    rest = module + list(words[at:])
    # Several programs: the first stands for all.
    if ":" in rest and wrapper is _MPI:
        rest = rest[: rest.index(":")]
    if seen.image is not None and _runs_itself(wrapper, words[1], rest):
        rest = [os.path.basename(seen.image).partition(":")[0], *rest]
    if not rest:
        return None
    if wrapper.scripts and not module and rest[0].endswith(".py"):
        rest = ["python", *rest]
    found.ranks = seen.ranks if found.ranks is None else found.ranks
    found.image = found.image or seen.image
    found.folders += seen.folders
    return rest


def _runs_itself(wrapper: _Wrapper, verb: str, rest: Sequence[str]) -> bool:
    """Whether a container runs its own program: nothing is named after the image, or only its arguments."""
    return not rest or rest[0].startswith("-") or (wrapper is _APPTAINER and verb == "run")


def _read_option(wrapper: _Wrapper, words: Sequence[str], at: int) -> tuple[str, str, int]:
    """(name, value or "", place of what follows) of the option at this place."""
    word = words[at]
    name, equals, value = word.partition("=")
    if equals:
        return name, value, at + 1
    count = wrapper.count_option_words(name)
    if not count and name in wrapper.module:
        count = 1
    if not word.startswith("--") and len(word) > 2 and not _is_listed_option(wrapper, name):
        if wrapper.count_option_words(word[:2]) and (
            wrapper.switches is None or word[:2] not in wrapper.switches
        ):
            return word[:2], word[2:], at + 1  # -n10
        # -it: the last of several letters may take a word.
        count = wrapper.count_option_words(f"-{word[-1]}")
    return name, words[at + 1] if count and at + 1 < len(words) else "", at + 1 + count


def _is_listed_option(wrapper: _Wrapper, name: str) -> bool:
    """Whether the option is named as it stands: MPI launchers have long ones with a single dash."""
    options = wrapper.values | wrapper.pairs | wrapper.ranks | wrapper.folder | wrapper.module
    return name in options or (wrapper.switches is not None and name in wrapper.switches)
