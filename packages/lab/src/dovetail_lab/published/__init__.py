"""Workloads that papers publish: ``published:NAME?option=value&…``.

Each module holds one paper's table and the rules by which its experiments draw from it; each maker is an
entry point of the group ``dovetail.published``.
"""
