"""What completes and keeps a stream's events, without input or output: the engine and what it is made of."""
