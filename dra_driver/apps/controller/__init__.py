"""`dra-driver controller`: one that leads, and what it removes."""
