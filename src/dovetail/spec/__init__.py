"""What a person may say of a job, a run, a service: plain data, which costs next to nothing to import."""
