"""`dra-driver explain` and `status`: a cluster, or files of one, read and shown."""
