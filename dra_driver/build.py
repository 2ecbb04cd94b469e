"""Which build of the driver this is."""

VERSION = "0.1.0"
