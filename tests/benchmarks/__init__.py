"""Benchmarks: `python -m tests.benchmarks` for time and memory, `python -m tests.benchmarks.guard` for work without a clock."""
