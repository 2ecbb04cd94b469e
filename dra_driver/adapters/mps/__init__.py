"""One MPS daemon of this node: its directory, its pipe, its processes and its logs.

When there is one, and for whom, is decided in `apps`.
"""
