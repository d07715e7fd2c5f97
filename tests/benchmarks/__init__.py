"""Benchmarks: `python -m tests.benchmarks` for time and memory, `python -m tests.benchmarks.opcodes` for work without a clock."""
