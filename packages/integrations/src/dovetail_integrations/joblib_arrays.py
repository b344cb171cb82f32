"""How the arrays of joblib's calls travel: as joblib's users know it from its own backends.

An array above `Parallel`'s ``max_nbytes`` (1 MB by default) is written once, to a file in ``temp_folder`` (by
default in shared memory), and every call maps it with ``mmap_mode``. A `numpy.memmap`, or a part of one, is
mapped from its own file, so that what a call writes there is written. All other arrays are copies.
"""

from __future__ import annotations

import io
import os
import tempfile
import weakref
from collections import ChainMap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import cloudpickle
import numpy as np
from joblib._memmapping_reducer import SYSTEM_SHARED_MEM_FS, _get_backing_memmap, _reduce_memmap_backed
from joblib.disk import delete_folder
from joblib.externals.loky.backend import resource_tracker

__all__ = ["SharedArrays"]

ENOUGH = 2 << 30
"""Free bytes that shared memory must have for arrays to be put there; joblib has the same limit."""


class _BatchPickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, reducers: Mapping[type, Callable[[Any], Any]]) -> None:
        # The pickler reads the table when it is made.
        self.dispatch_table = ChainMap(dict(reducers), cloudpickle.Pickler.dispatch_table)
        super().__init__(file, protocol=5)


class SharedArrays:
    """The large arrays of one `Parallel`, each in a file as long as the array lives and a call runs with it.

    Who pickles a batch holds it until its calls have ended, and so its arrays.
    """

    def __init__(self, max_nbytes: float | None, mmap_mode: str | None, temp_folder: str | None) -> None:
        self._most = float("inf") if max_nbytes is None else max_nbytes
        # To open a file anew would empty it.
        self._mode = "r+" if mmap_mode == "w+" else mmap_mode
        self._parent = temp_folder
        self._folder: Path | None = None
        self._paths: dict[int, Path] = {}
        self._reducers = {np.ndarray: self._reduce_array, np.memmap: self._reduce_array}

    def pickle_batch(self, batch: Any) -> bytes:
        """A batch of calls. Raises what pickling raises, `OSError` where a file cannot be written."""
        file = io.BytesIO()
        _BatchPickler(file, self._reducers).dump(batch)
        return file.getvalue()

    def forget_arrays(self) -> None:
        """Write arrays anew from now on, since their values may have changed. Calls that run keep theirs."""
        self._paths.clear()

    def close(self) -> None:
        """Remove all files; what is mapped stays so."""
        self.forget_arrays()
        if self._folder is not None:
            folder, self._folder = str(self._folder), None
            delete_folder(folder, allow_non_empty=True)
            resource_tracker.unregister(folder, "folder")

    def _reduce_array(self, array: Any) -> Any:
        backing = _get_backing_memmap(array)
        if isinstance(backing, np.memmap) and backing.filename is not None:
            return _reduce_memmap_backed(array, backing)
        if array.dtype.hasobject or array.nbytes <= self._most:
            return array.__reduce_ex__(5)
        order = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        path = self._paths.get(id(array)) or self._write_array(array, order)
        return _map_array, (str(path), array.dtype, array.shape, order, self._mode)

    def _write_array(self, array: Any, order: str) -> Path:
        path = self._own_folder() / f"{uuid4().hex}.array"
        (array.T if order == "F" else array).tofile(path)
        self._paths[id(array)] = path
        weakref.finalize(array, self._drop_array, id(array), path).atexit = False
        return path

    def _drop_array(self, key: int, path: Path) -> None:
        # Another array may have this identity by now, and so another path.
        if self._paths.get(key) == path:
            del self._paths[key]
        path.unlink(missing_ok=True)

    def _own_folder(self) -> Path:
        if self._folder is None:
            parent = self._parent or os.environ.get("JOBLIB_TEMP_FOLDER") or _shared_memory()
            self._folder = Path(tempfile.mkdtemp(prefix="dovetail-joblib-", dir=parent))
            # joblib's process of its own removes the folder where this one is killed.
            resource_tracker.register(str(self._folder), "folder")
        return self._folder


def _shared_memory() -> str | None:
    """Where files are memory, if there is enough of it; ``None``: where temporary files lie."""
    try:
        found = os.statvfs(SYSTEM_SHARED_MEM_FS)
    except OSError:
        return None
    enough = found.f_bsize * found.f_bavail > ENOUGH and os.access(SYSTEM_SHARED_MEM_FS, os.W_OK)
    return SYSTEM_SHARED_MEM_FS if enough else None


def _map_array(path: str, dtype: Any, shape: tuple[int, ...], order: Any, mode: Any) -> Any:
    """The array of a file, in the worker."""
    if mode is None:
        return np.fromfile(path, dtype).reshape(shape, order=order)
    return np.memmap(path, dtype, mode, shape=shape, order=order)
