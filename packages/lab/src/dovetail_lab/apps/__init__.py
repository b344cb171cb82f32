"""The sixteen benchmark apps of Gregg 2011, Table 2, each for a CPU core and for an OpenCL device.

The thirteen of Ravi 2012 are in :mod:`dovetail_lab.apps.ravi`.

``python -m dovetail.apps NAME --device cpu|opencl|cuda --n N`` runs one and prints one line of JSON;
:mod:`dovetail_lab.apps.registry` lists them and runs them in this process.

An app's file imports nothing but NumPy at import: these programs are run as jobs, so the time to start one
is part of what is measured.
"""
