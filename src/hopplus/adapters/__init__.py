"""The outside world's interfaces to our games."""
