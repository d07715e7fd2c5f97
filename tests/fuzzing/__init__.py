"""Coverage-guided fuzzing of everything that reads bytes from outside.

    python -m tests.fuzzing                             each target for a few thousand executions
    python -m tests.fuzzing --executions 10000000       that many in all; hours
    python -m tests.fuzzing --target anthropic          one target; --list names them all

It needs `atheris` (the extra `fuzz`). The targets themselves are plain functions of bytes, in `targets.py`;
`tests/test_fuzzing.py` runs them without atheris, over the seeds and some mutations.
"""
