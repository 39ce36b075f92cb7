"""Sweeps: many trainings from one file, run on this machine or on Ray, and the tables of their results."""

__all__ = ["directory", "estimate", "plan", "ray_backend", "results", "tables", "workers"]
