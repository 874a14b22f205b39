"""The worker side: which workers serve a request, in which order, and what they are sent."""
