"""The kinds that the API server knows: schemas, versions, and the rules of each."""
