"""Handlers and interfaces that people know from elsewhere, over any stream."""
