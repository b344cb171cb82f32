"""What a user may set for a job, a run, a service: plain data, which costs next to nothing to import."""
