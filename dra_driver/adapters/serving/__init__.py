"""HTTP servers of our own, and their certificates."""
