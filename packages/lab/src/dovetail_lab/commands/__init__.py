"""The lab's commands of ``dovetail``, found by the entry points ``dovetail.commands``."""
