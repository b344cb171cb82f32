"""Gregg 2011, dynamic heterogeneous scheduling decisions using historical runtime data."""
