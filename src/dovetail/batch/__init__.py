"""Jobs as batch jobs of another scheduler, whichever that is: it decides when, and on which nodes, they run.

A batch system is a `BatchSystem`: its commands and how their output is read, one file. `BatchExecutor` does
the rest for all of them: which jobs go together, what was handed over and survives Dovetail, what became of
it.
"""
