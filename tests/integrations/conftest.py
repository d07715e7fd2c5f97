"""The package `ai` needs a newer Python, in which `.ci/run` runs its tests; here they are not collected."""

import sys

collect_ignore = ["test_ai.py"] if sys.version_info < (3, 12) else []
