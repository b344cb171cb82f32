"""The engine: events in, decisions out; no clock, no input or output."""
