"""Runs and services on real machines: their folders, their ledgers, what is left behind and taken up."""
