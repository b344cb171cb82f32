"""The thirteen applications of Ravi 2012 (Figures 1 and 2), written anew from the published formulas.

The paper names them and their data sets, not its programs. Each file is one application: ``inputs``, ``cpu``,
``opencl`` and, where it serves, ``array_api``, as in `dovetail_lab.apps`; all take ``iterations`` besides.
"""
