"""Stands in a terminal for a program that `tests/forked.py` runs: gives the terminal up, and stays until the program has ended.

    python -S in_terminal.py SOCKET PROGRAM [ARGUMENT …]

It imports as little as it can.
"""

import fcntl
import json
import os
import signal
import socket
import sys
import termios

if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which comes when the terminal is given up
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(sys.argv[1])
        order = {"program": sys.argv[2], "arguments": sys.argv[3:], "files": [os.ttyname(0)] * 3}
        order |= {"env": dict(os.environ), "cwd": os.getcwd()}
        fcntl.ioctl(0, termios.TIOCNOTTY)
        server.sendall(json.dumps(order).encode() + b"\n")
        server.recv(1)
