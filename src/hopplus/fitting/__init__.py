"""Offline fits of models to datasets: training loop and diagnoses."""
