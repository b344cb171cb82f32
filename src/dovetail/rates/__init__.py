"""How fast jobs progress while they share a cluster (simulation only)."""
