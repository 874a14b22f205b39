"""Transports, one a file: the ways to carry out an HTTP attempt."""
