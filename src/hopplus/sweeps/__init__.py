"""Sweeps: many trainings from one file, run on this machine or on Ray, and the tables of their results."""
