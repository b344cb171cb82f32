"""Scripts that ask a driver what devices there are. Each runs in a process of its own.

A driver can hang or crash whoever loads it. Every script prints one JSON object: ``devices``, a list,
and ``why``, a sentence where there are none.
"""
