"""`stream` and `astream`: the state that both share, and the two managers that drive it."""
