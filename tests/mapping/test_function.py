from __future__ import annotations

import functools
import pickle
import subprocess
import sys
import types
from typing import Any

import map_functions
import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError
from dovetail.mapping.function import Function, as_function, identity_of, ship_implementation
from dovetail.mapping.running import load_function


def test_called_as_it_stands_it_runs_on_the_cpu() -> None:
    assert map_functions.double(3) == 6
    assert map_functions.double.__doc__ == "Twice the item, on any kind."
    assert map_functions.double.__name__ == "double"


def test_opencl_workers_run_the_gpu_function_unless_there_is_one_of_their_own() -> None:
    @dovetail.function
    def f(x: int) -> int:
        return x

    assert f.implementation("opencl") is None

    @f.gpu
    def on_gpu(x: int) -> int:
        return -x

    assert f.implementation("opencl") is f.implementation("gpu") is on_gpu

    @f.opencl
    def on_opencl(x: int) -> int:
        return 0

    assert f.implementation("opencl") is on_opencl
    assert f.implementation("gpu") is on_gpu


def test_names() -> None:
    assert map_functions.double.name == "map_functions.double"
    assert as_function(map_functions.plain).name == "map_functions.plain"
    assert as_function(functools.partial(map_functions.plain)).name == "map_functions.plain"
    assert as_function(lambda x: x).name == ""
    assert as_function(np.sqrt).name == "numpy.sqrt"
    assert dovetail.function(name="mine")(map_functions.plain).name == "mine"


def test_functions_of_scripts_are_called_by_their_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "folder/script.py", raising=False)
    made = types.FunctionType(map_functions.plain.__code__, {}, "f")
    made.__module__ = "__main__"
    made.__qualname__ = "f"
    assert identity_of(made) == "script.py:f"


def test_what_can_be_imported_travels_by_name() -> None:
    shipped = ship_implementation(map_functions.double, "gpu")
    assert len(shipped) < 200
    assert load_function(shipped) is map_functions.double.implementations["gpu"]
    assert load_function(ship_implementation(as_function(map_functions.plain), "cpu")) is map_functions.plain
    assert pickle.loads(pickle.dumps(map_functions.double)) is map_functions.double


def test_what_cannot_travels_by_value_and_only_its_own_kind() -> None:
    offset = 7

    @dovetail.function
    def here(x: int) -> int:
        return x + offset

    @here.gpu
    def _(x: int) -> int:
        return x - offset

    code = "import sys, pickle; f = pickle.loads(sys.stdin.buffer.read()); print(f(1))"
    for kind, expected in (("cpu", 8), ("gpu", -6)):
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=ship_implementation(here, kind),
            capture_output=True,
            check=True,
        )
        assert int(done.stdout) == expected


def test_a_function_of_a_module_that_workers_cannot_find_travels_by_value() -> None:
    module = types.ModuleType("module_of_nowhere")
    exec("def f(x):\n    return helper(x)\ndef helper(x):\n    return x + 1", module.__dict__)
    sys.modules["module_of_nowhere"] = module
    try:
        shipped = ship_implementation(as_function(module.f), "cpu")
    finally:
        del sys.modules["module_of_nowhere"]
    assert pickle.loads(shipped)(1) == 2


def test_a_function_object_in_a_script_travels_whole() -> None:
    code = """
import cloudpickle, pickle, dovetail
@dovetail.function
def f(x): return x
@f.gpu
def _(x): return -x
again = pickle.loads(cloudpickle.dumps(f))
print(again(1), again.implementation("gpu")(1), again.name)
"""
    done = subprocess.run([sys.executable, "-"], input=code, capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["1", "-1"]


def test_what_cannot_be_sent_is_refused_with_its_name() -> None:
    lock: Any = __import__("threading").Lock()

    def f(x: int) -> int:
        with lock:
            return x

    with pytest.raises(InputError, match=r"f' ?.*cannot be sent to a worker: TypeError"):
        ship_implementation(as_function(f), "cpu")


def test_a_kind_without_an_implementation_is_refused() -> None:
    with pytest.raises(InputError, match="has no implementation for gpu, expected one \\(found cpu\\)"):
        ship_implementation(as_function(map_functions.plain), "gpu")


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(InputError, match="found 5, expected a function"):
        as_function(5)
    assert isinstance(as_function(map_functions.double), Function)
