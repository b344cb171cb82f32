"""Dovetail on Ray: jobs, maps and device lending on the nodes of a Ray cluster."""
