"""Models of other programs, read and written in their own files."""
