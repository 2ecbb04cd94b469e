"""What runs: wires logic to adapters, owns threads, order and rollback."""
