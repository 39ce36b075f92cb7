"""Many trainings as one file and one command: what is to be run, where, and the tables that come of it."""
