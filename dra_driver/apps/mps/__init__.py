"""MPS daemons as they run: the one that watches over a daemon, its pod, and what sweeps them.

Which claims need one is decided by `effects.sharing`.
"""
