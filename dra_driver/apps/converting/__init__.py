"""`dra-driver convert`: manifests of older systems, read, and written as those of today."""
