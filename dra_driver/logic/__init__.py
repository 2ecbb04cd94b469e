"""What follows: decisions as pure functions. No I/O, clock, randomness or logging."""
