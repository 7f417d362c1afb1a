"""Loss terms and mixing functions that methods share, one module for each kind."""
