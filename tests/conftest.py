"""What all tests share: the same generated inputs in every run.

`pytest --hypothesis-profile=search` looks for new ones; what it finds becomes a test of its own.
"""

from hypothesis import Phase, settings

# To explain a failure is to trace it, and CPython 3.11 can spin for ever in a frame that is traced (its DO_TRACING).
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)

settings.register_profile("repeatable", derandomize=True, database=None, phases=PHASES)
settings.register_profile("search", database=None, phases=PHASES)
settings.load_profile("repeatable")
