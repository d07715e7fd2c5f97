"""What runs inside the Python kernel: an ipykernel whose output goes to the run that wrote it.

It is a program, which `python.py` starts by this directory's name; nothing here is imported by anything else. `channel`
is how it tells and hears, `console` is what its stdout and stderr are, `program` is the kernel itself.

Code that runs in it may replace what it likes in the modules that all share. So what has to go on for a run to be told
holds the functions that it needs itself, and where it cannot go on the process ends, which is told in its place.
"""
