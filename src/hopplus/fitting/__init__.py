"""Offline fits of models to datasets: training loop and diagnoses."""

__all__ = ["diagnose_moa", "diagnose_subgoals", "diagnose_world_model", "loop"]
