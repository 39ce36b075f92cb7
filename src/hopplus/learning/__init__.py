"""What turns episodes into parameters: losses and updates, no I/O."""
