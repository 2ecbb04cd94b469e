"""The API server's HTTP side: routes, formats, discovery, watches, who may do what."""
