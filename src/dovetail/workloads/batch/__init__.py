"""Batch scripts, read by sbatch's rules: what is one, its head, its options, what a job gets from them.

`read_script` is the door. `head` finds the lines, `options` reads their words as getopt does, `units` and
`moments` their values, `resources` adds up the requests for a node, `patterns` names files, `environment`
and `variables` are what the job's processes see. The table of options is `dovetail.spec.sbatch`.
"""
