"""The engine and its parts, which complete a stream's events and hold its state, without input or output."""
