"""Every policy on every kind of queue: which one to use when."""
