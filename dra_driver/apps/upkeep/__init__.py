"""What is put in order without a call: after a start, every few seconds, when claims are gone."""
