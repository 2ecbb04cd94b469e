"""What the controller decides: who leads, and what nodes that are gone have left."""
