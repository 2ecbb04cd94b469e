"""Why a pod has no device, and the smallest change that would give it one.

The rules of allocation themselves are `scheduling`.
"""
