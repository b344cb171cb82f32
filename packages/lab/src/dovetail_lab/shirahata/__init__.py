"""Shirahata 2010: the figures of hybrid map task scheduling, and its claims, beside ours."""
