"""The decision core: capacity, what will be free, state, decisions, and their journal."""
