"""What will be free, as running jobs end by their limits and promises are kept."""
