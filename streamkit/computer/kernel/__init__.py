"""The program inside the Python process: an IPython shell whose output goes to the run that wrote it.

It is a program of its own, which `computer/python.py` starts from this directory; no other module imports it. `channel`
exchanges frames and answers with the runner, `console` replaces stdout and stderr, `displays` sends displayed values,
`event_loop` is where code awaits, `shell` is IPython's shell with all of these, `program` is the kernel itself.

Code that runs in it may replace anything in the modules that both share. So whatever a run needs in order to be
reported holds references of its own to the functions that it uses; and where it cannot go on the process ends, which
the runner reports instead.
"""
