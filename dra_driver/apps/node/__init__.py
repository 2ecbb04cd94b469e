"""What is true of a node, for plugin and doctor: hardware, directories, abilities."""
