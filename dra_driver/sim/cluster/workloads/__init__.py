"""Controllers of workloads: what they decide, one module each (pure), and the loop that does it."""
