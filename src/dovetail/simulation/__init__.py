"""The loop of a simulation, and the compiled stand-in for rigid jobs."""
