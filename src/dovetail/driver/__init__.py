"""What all worlds have in common: submission, priority, orders, ends, and the loop of a live run."""
