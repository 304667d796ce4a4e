"""The source of the client: tools/unasync.py makes the package _sync from the package _async."""
