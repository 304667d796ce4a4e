# Written by tools/unasync.py from src/hutch/_async: change that, and run it.
"""The source of the client: tools/unasync.py makes the package _sync from the package _async."""
