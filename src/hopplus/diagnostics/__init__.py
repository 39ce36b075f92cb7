"""Each module answers one question about the system or a run, in figures and pictures."""
