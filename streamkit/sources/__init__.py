"""What a stream reads: whatever the user holds, opened as batches of bytes or items, and decoded to events."""
