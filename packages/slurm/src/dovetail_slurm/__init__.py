"""Dovetail on Slurm: inside an allocation, before its queue, questions to its accounting."""
