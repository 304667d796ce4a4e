"""The client, as a source: tools/unasync.py makes the package _sync of this one."""
