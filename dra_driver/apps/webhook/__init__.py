"""`dra-driver webhook`: the admission webhook and its certificates."""
