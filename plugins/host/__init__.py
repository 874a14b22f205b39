"""The process that hosts the kernel: command line, server, several processes on one port, signals, demo."""
