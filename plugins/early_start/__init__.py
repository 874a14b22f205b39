"""Begins streams before their answer does, and keeps them alive while nothing is said."""
