"""What the API server keeps: objects, versions, patches, owners and the ends of objects."""
