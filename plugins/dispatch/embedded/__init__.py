"""Owns the workers that the kernel starts beside itself, for a first answer without any set-up."""
