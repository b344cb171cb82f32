"""Scripts that query a driver for its devices. Each runs in a process of its own.

A driver can hang or crash its process. Every script prints one JSON object: ``devices``, a list,
and ``why``, a sentence where there are none.
"""
