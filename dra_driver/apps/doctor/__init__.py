"""`dra-driver doctor`: what a node or its cluster lacks, why, and what to do."""
