"""What people at a command line give and see: manifests and settings files, tables, errors."""
