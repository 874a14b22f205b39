"""The bodies and the streams of the APIs, and what all engines' have in common."""
