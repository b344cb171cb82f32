"""``sbatch``: a script becomes a job, by the rules of `dovetail.workloads.batch`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.errors import InputError
from dovetail.spec.sbatch import SBATCH_OPTIONS
from dovetail_slurm.shims.jobs import PARTITION
from dovetail_slurm.shims.options import Given, Options, Wrong, has_option, last_value, write_complaint
from dovetail_slurm.shims.service import Refused, Service
from dovetail_slurm.shims.times import format_moment

_TAKES = {"none": "!", "optional": "?", "required": "="}
OPTIONS = Options(
    "sbatch",
    " ".join(
        f"{name}{_TAKES[one.value]}{one.short if name == one.name else ''}"
        for one in SBATCH_OPTIONS
        for name in (one.name, *one.aliases)
    ),
)
HERE = ("help", "usage", "version", "parsable", "quiet", "verbose", "test-only", "wrap", "wait")
"""Options that are about this command, and not about the job."""
WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"
NO_SCRIPT = (
    "sbatch: error: This does not look like a batch script.  The first",
    "sbatch: error: line must start with #! followed by the path to an interpreter.",
    "sbatch: error: For instance: #!/bin/sh",
)
DOS = (
    "sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
    "sbatch: error: instead of expected UNIX line breaks (\\n).",
)
KEPT = ("SLURM_CONF", "SLURM_HINT", "SLURM_CLUSTERS", "SLURM_EXIT_ERROR", "SLURM_EXIT_IMMEDIATE")
"""Variables of Slurm that are no facts about the job in which we are."""


def run(words: list[str], place: str) -> int:
    """Submit; exit status 255 for wrong options, 1 for what is refused, with ``--wait`` that of the job."""
    try:
        given, rest = OPTIONS.read(words, permute=False)
    except Wrong as error:
        raise Wrong(*error.lines, status=255) from None
    if has_option(given, "help", "usage"):
        print(f"Usage: sbatch [OPTIONS(0)...] script [args(0)...]\n{' '.join(OPTIONS.values)}")
        return 0
    quiet = has_option(given, "quiet")
    form, wait = form_of(given, rest, quiet=quiet)
    service = Service("sbatch", place)
    if has_option(given, "test-only"):
        return _test_submission(service, form, quiet=quiet)
    try:
        found = service.post_form("/api/v1/jobs", form)
    except Refused as error:
        raise Wrong(f"sbatch: error: Batch job submission failed: {reword_error(error)}") from None
    for note in found.get("notes", ()):
        # The partition that stands for the whole machine here is in many scripts; a warning each time would
        # be noise.
        if not quiet and not (note["field"] == "partition" and form["jobs"][0].get("partition") == PARTITION):
            write_complaint(
                f"sbatch: --{note['field']} has no meaning here and is passed over: {note['text']}"
            )
    number = found["numbers"][0]
    if has_option(given, "parsable"):
        print(number)
    elif not quiet:
        print(f"Submitted batch job {number}")
    if not (wait or has_option(given, "wait")):
        return 0
    # Scripts read the number from a pipe while this process waits on.
    sys.stdout.flush()
    return status_after(service, found["ids"])


def form_of(
    given: Sequence[Given], rest: Sequence[str], *, quiet: bool = True
) -> tuple[dict[str, Any], bool]:
    """What the service gets for a script, and whether to wait for its end. Raises `Wrong`."""
    wrapped = last_value(given, "wrap")
    if wrapped is not None:
        if rest:
            raise Wrong("sbatch: error: Script arguments not permitted with --wrap option")
        return script_form(WRAPPED.format(wrapped), "wrap", "", given, [], quiet=quiet, name="wrap")
    text, shown, path = _read_script(rest)
    return script_form(text, shown, path, given, rest[1:], quiet=quiet)


def script_form(
    text: str,
    shown: str,
    path: str,
    given: Sequence[Given],
    arguments: Sequence[str],
    *,
    quiet: bool,
    name: str = "",
    output: bool = True,
) -> tuple[dict[str, Any], bool]:
    """A text with options as a submission; without ``output`` the service keeps what it writes."""
    from dovetail.client.requests import request_context, request_of_parts
    from dovetail.workloads.batch.script import read_script
    from dovetail.workloads.batch.submitting import environment_of, script_part, umask_of
    from dovetail.workloads.batch.variables import Origin

    words = [
        f"--{one.name}" + ("" if one.value is None else f"={one.value}")
        for one in given
        if one.name not in HERE
    ]
    try:
        script = read_script(text, shown, environ=os.environ, words=words, path=path)
        _check_options(script.refused)
        around = request_context()
        environ = _submission_environment(environment_of(script, around["environment"]))
        # Users of sbatch expect Slurm's file in their folder, not one in the service's.
        if output and not script.own.get("stdout"):
            usual = "slurm-%A_%a.out" if script.array is not None else "slurm-%j.out"
            script.fields.setdefault("stdout", usual)
        script.from_slurm = True
        above = {"name": name} if name and "name" not in script.fields else {}
        part = script_part(script, arguments, above, Origin.of_this_process(around["folder"]))
    except InputError as error:
        raise _explain_refusal(str(error)) from None
    if not quiet:
        partition = f"-p {PARTITION}"
        write_complaint(
            *(f"sbatch: {note.sentence()}" for note in script.warned if partition not in note.option)
        )
    umask = umask_of(os.environ)
    around |= {} if umask is None else {"umask": umask}
    return {**around, **request_of_parts(part), "environment": environ}, script.wait


def _check_options(refused: Sequence[Any]) -> None:
    """Raise `Wrong` for the first option that is refused: 255 on the command line, as sbatch has it."""
    if not refused:
        return
    first = refused[0]
    status = 255 if first.where == "the command line" else 1
    if first.option.startswith("--array"):  # of which sbatch leaves the check to the controller
        raise Wrong(
            f"sbatch: error: Batch job submission failed: Invalid job array specification ({first.effect})"
        )
    raise Wrong(f"sbatch: error: {first.sentence()}", status=status)


def _explain_refusal(sentence: str) -> Wrong:
    if "DOS line ends" in sentence:
        return Wrong(*DOS)
    if "expected #! and the path of an interpreter" in sentence:
        return Wrong(*NO_SCRIPT)
    return Wrong(f"sbatch: error: {sentence}")


def _submission_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Without what describes the job in which we are ourselves."""
    if "SLURM_JOB_ID" not in os.environ:
        return dict(environ)
    ours = ("SLURM_", "SLURMD_", "PMI_", "PMIX_")
    return {name: value for name, value in environ.items() if not name.startswith(ours) or name in KEPT}


def _read_script(rest: Sequence[str]) -> tuple[str, str, str]:
    """The text of the script, its name for sentences, and its path (empty: standard input)."""
    if not rest:
        return _read_file(0, "standard input"), "standard input", ""
    path = rest[0]
    # As sbatch does: a name without a slash is looked up in PATH where the folder has no such file.
    if "/" not in path and not os.path.exists(path):
        from shutil import which

        path = which(path) or path
    if path == "/dev/stdin":
        return _read_file(0, path), path, path
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise Wrong(f"sbatch: error: Unable to open file {rest[0]}") from None
    try:
        return _read_file(fd, path), rest[0], path
    finally:
        os.close(fd)


MOST_BYTES = 4 << 20
"""Bytes of a script; Slurm's own limit."""


def _read_file(fd: int, path: str) -> str:
    parts, total = [], 0
    try:
        while part := os.read(fd, 1 << 16):
            parts.append(part)
            total += len(part)
            if total > MOST_BYTES:
                raise Wrong(
                    f"sbatch: error: Batch script is too long: {path}: expected at most {MOST_BYTES} bytes"
                )
    except OSError as error:
        raise Wrong(f"sbatch: error: Unable to read file {path}: {error.strerror}") from None
    data = b"".join(parts)
    if not data:
        raise Wrong("sbatch: error: Batch script is empty!")
    if b"\0" in data:
        raise Wrong("sbatch: error: The script contains a null character, expected text")
    return data.decode("utf-8", "surrogateescape")


def reword_error(error: Refused) -> str:
    """A refusal of the service, with Slurm's words before it where there are some."""
    text = error.text
    for sign, words in (
        ("partition: found", "Invalid partition name specified"),
        ("depends: found", "Job dependency problem"),
        ("array: found", "Invalid job array specification"),
        ("nodes: found", "Node count specification invalid"),
        ("found a job", "Requested node configuration is not available"),
        ("cpus: found", "Requested node configuration is not available"),
    ):
        if sign in text:
            return f"{words} ({text})"
    return text


def _test_submission(service: Service, form: Mapping[str, Any], *, quiet: bool) -> int:
    """Check a submission; what is known of its start. The service takes nothing in."""
    try:
        found = service.post_form("/api/v1/jobs/test", form)["jobs"][0]
    except Refused as error:
        raise Wrong(f"allocation failure: {reword_error(error)}") from None
    job, number = form["jobs"][0], found["id"].partition("_")[0]
    cpus = job.get("cpus") or 1
    count = cpus * (job.get("nodes") or 1) if isinstance(cpus, int) else cpus
    write_complaint(
        f"sbatch: Job {number} to start at {format_moment(found['predicted_start'])} using {count} "
        f"processors "
        f"on nodes (none yet) in partition {job.get('partition') or PARTITION}"
    )
    return 0


def status_after(service: Service, ids: Sequence[str]) -> int:
    """Wait until jobs have ended; the highest exit status, of one that a signal ended 128 and its number."""
    jobs = ",".join(ids)
    # The service answers after 30 s at the latest, so that a connection that broke unnoticed is found out.
    while service.post_form("/api/v1/wait", {"jobs": jobs, "timeout": 30})["left"]:
        pass
    found = service.get("/api/v1/records", {"jobs": jobs})["jobs"]
    return max((_status_of(row) for row in found), default=1)


def _status_of(row: Mapping[str, Any]) -> int:
    code = row["exit_code"]
    if code is None:
        return int(row["state"] != "COMPLETED")
    # A shell's convention: 128 and the number of the signal.
    return int(code) if code >= 0 else 128 - int(code)
