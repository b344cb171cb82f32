"""Array-only inner loops (numba), each with a plain-Python twin."""
