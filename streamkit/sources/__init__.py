"""Sources: the values that users pass, opened as batches of bytes or items, and decoded to events."""
