"""The embedded API server: Kubernetes objects over real HTTP on loopback, for trying and testing.

`store` and what stands on it are plain synchronous Python; only `server` knows of HTTP.
"""
