"""A module that wants to end the process."""

raise SystemExit("run me from the command line")
