"""Events, predictions and decisions as they are written down, read and replayed."""
