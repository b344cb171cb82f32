"""This machine as a place to run jobs: its executor, its devices, and what each Dovetail on it uses."""
