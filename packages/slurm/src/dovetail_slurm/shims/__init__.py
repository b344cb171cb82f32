"""Slurm's commands, spoken by a service of Dovetail's: what ``dovetail slurm-shims`` puts into a folder.

A program that calls ``sbatch``, ``squeue`` or ``sacct`` finds them there with Slurm's options, forms and exit
statuses. They are called often, so they import little: no command-line library, no HTTP library, nothing from
site-packages. `options` reads their words, `service` calls the service, `jobs` and `columns` write answers;
each command is a module of its name.
"""
