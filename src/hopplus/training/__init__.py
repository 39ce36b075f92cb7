"""The loop around learning: recipes, the trainer, checkpoints and run directories."""
