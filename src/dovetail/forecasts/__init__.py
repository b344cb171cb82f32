"""When the jobs of a queue start and end, between when and when, and what would start sooner."""
