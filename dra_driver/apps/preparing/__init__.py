"""One claim from the kubelet's call to its devices, and back: turns, attempts, undoing.

What an attempt does to devices is in `effects`.
"""
