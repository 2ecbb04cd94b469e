"""What we talk to: one thin module for each outside thing. No decisions."""
