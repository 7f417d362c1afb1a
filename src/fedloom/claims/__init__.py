"""What the papers claim, the runs that test it, and what came out."""
