"""Markthub 2015: Figures 6 to 12 of batch queues with remote GPUs, and its claims, beside ours."""
