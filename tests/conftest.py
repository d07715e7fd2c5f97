"""What all tests share: the same generated inputs in every run.

`pytest --hypothesis-profile=default` looks for new ones; what it finds becomes a test of its own.
"""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, database=None)
settings.load_profile("repeatable")
