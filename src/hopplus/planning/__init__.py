"""Planning: simulator, tree search and imagined rollouts, on beliefs about co-players."""

__all__ = ["catalog", "imagination", "simulation", "simulator", "tree", "tree_search"]
