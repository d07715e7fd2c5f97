"""Long runs, as commands. The suite runs a short round of each."""
