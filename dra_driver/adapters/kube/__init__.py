"""The API server: requests, lists in pages, watches, and what its answers mean."""
