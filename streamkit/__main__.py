"""`python -m streamkit`."""

from .cli import main

raise SystemExit(main())
