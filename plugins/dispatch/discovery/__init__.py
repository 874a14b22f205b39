"""Discoveries, one a file, found through the entry points of the group `kernel.discovery`."""
