"""The version, where every layer may read it."""

__version__ = "0.1.0"
API = 2
"""What a service answers and takes: a higher number has more. Each answer has it in a header; 1 had none."""
API_HEADER = "dovetail-api"
