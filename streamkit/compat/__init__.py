"""Handlers and interfaces of other libraries, for any stream: openai, Open Interpreter, MemGPT and Letta."""
