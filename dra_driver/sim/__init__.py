"""The embedded cluster: real protocols around pretended silicon and containers."""
