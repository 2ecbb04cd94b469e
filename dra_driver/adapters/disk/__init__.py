"""What is kept on disk: whole files, and the records in them, with one policy for damage."""
