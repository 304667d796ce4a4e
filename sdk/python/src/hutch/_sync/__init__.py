# Written by tools/unasync.py from src/hutch/_async: change that, and run it.
"""The client, as a source: tools/unasync.py makes the package _sync of this one."""
