"""Gantt charts: one layout (`lanes`), drawn as text, as a figure, and on pages."""
