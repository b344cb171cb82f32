"""Each option exists everywhere it applies and nowhere else: commands, lines of scripts, forms, Python."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from option_values import value_of
from pydantic import ValidationError

from dovetail.cli.main import _SECTIONS, _whole_command
from dovetail.errors import InputError
from dovetail.service.forms import JobForm, WaitForm
from dovetail.spec.commands import commands_with_options, options_of
from dovetail.spec.jobs import JOB, OF_PYTHON, SPEC, as_form
from dovetail.spec.option import DURATION, SIZE
from dovetail.spec.script_lines import read_own_line
from dovetail.workloads.batch.script import read_script
from dovetail.workloads.batch.submitting import script_part
from dovetail.workloads.batch.variables import Origin


def shown(group: Any, names: list[str], path: str = "") -> Iterator[tuple[str, Any]]:
    for name in names:
        command = group.commands[name]
        inner = list(getattr(command, "commands", {}))
        if inner:
            yield from shown(command, inner, f"{path}{name} ")
        else:
            yield path + name, command


OURS = [*(name for section in _SECTIONS.values() for name in section), "device-server", "mcp"]
COMMANDS = dict(shown(_whole_command(), OURS))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_what_the_specification_says(name: str) -> None:
    there = {one.name: one for one in COMMANDS[name].params}
    wanted = {option.name: option for option in options_of(name)}
    assert there.keys() == wanted.keys()
    for key, option in wanted.items():
        assert (there[key].help or "") == option.help
        if not option.positional:
            spelt = "/".join([*there[key].opts, *there[key].secondary_opts])
            assert spelt == "/".join(option.spellings)


def test_the_specification_has_no_option_of_a_command_that_is_not_there() -> None:
    assert set(commands_with_options()) <= COMMANDS.keys()


def test_a_form_of_a_job_has_the_options_that_say_so() -> None:
    assert JobForm.model_fields.keys() == {option.http for option in SPEC if option.http}
    assert JobForm.model_fields.keys() >= OF_PYTHON
    assert {"array", "sbatch"} <= OF_PYTHON


LINES = [(name, option) for option in JOB for name in option.lines.split()]


@pytest.mark.parametrize(("spelt", "option"), LINES, ids=[spelt for spelt, _ in LINES])
def test_a_line_of_a_script_may_have_what_submit_takes(spelt: str, option: Any) -> None:
    value = str(value_of(option)) if option.value else ""
    joined = "=" if spelt.startswith("--") and value else " "
    found = read_own_line(f"{spelt}{joined}{value}", "job.sh: line 2")
    assert list(found) == [option.name]
    assert "submit" in option.commands
    JobForm.model_validate(as_form(found))


def test_dependencies_of_one_line_add_up() -> None:
    text = "#!/bin/bash\n#SBATCH -d afterok:1\n#DOVETAIL -d afterany:2 -d afterok:3:4\n"
    found = script_part(read_script(text, "job.sh", environ={}), (), {}, Origin.of_this_process("/"))
    assert found["depends"] == ["afterany:2", "afterok:3", "afterok:4"]


def test_the_specification_needs_neither_typer_nor_pydantic() -> None:
    program = "import sys, dovetail.spec.commands; print({'typer', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_help_and_client_commands_load_no_pydantic() -> None:
    program = (
        "import sys\nfrom dovetail.cli.main import status_of\n"
        "for name in sys.argv[1:]:\n"
        "    try:\n        status_of([*name.split(), '--help'])\n    except SystemExit:\n        pass\n"
        "status_of(['queue', '--service', '/nowhere'])\n"
        "print([n for n in sys.modules if n == 'pydantic'], file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.endswith("[]\n")


UNITS = [
    (name, option, *(("1m", 60.0) if option.value == DURATION else ("64MB", 64_000_000)))
    for name in COMMANDS
    for option in options_of(name)
    if option.value in (DURATION, SIZE) and option.kind is None and option.name != "default_walltime"
]


@pytest.mark.parametrize(
    ("name", "option", "text", "read"), UNITS, ids=[f"{name} {option.name}" for name, option, *_ in UNITS]
)
def test_sizes_and_durations_are_read_with_their_units(
    name: str, option: Any, text: str, read: float
) -> None:
    parameter = next(one for one in COMMANDS[name].params if one.name == option.name)
    assert parameter.get_runtime_param().coerce(text, parameter, None) == read
    with pytest.raises(InputError, match=re.escape(option.spellings[0])):
        parameter.get_runtime_param().coerce("soon", parameter, None)


def test_a_wait_over_http_may_be_written_with_its_unit() -> None:
    assert WaitForm.model_validate({"jobs": "1", "timeout": "1m"}).timeout == 60


LIMITS = [
    (option.name, edge, beyond)
    for option in SPEC
    for edge, beyond in ((option.least, -1), (option.most, 1))
    if edge is not None and option.http
]


@pytest.mark.parametrize(("name", "edge", "beyond"), LIMITS)
def test_forms_keep_the_limits_of_the_specification(name: str, edge: float, beyond: int) -> None:
    if not next(option for option in JOB if option.name == name).above:
        JobForm.model_validate({name: edge})
    with pytest.raises(ValidationError):
        JobForm.model_validate({name: edge + beyond * max(1, abs(edge) * 1e-9)})
