"""The plugin `request_timing`: when a request passed its stations, and how long each part of it took."""
