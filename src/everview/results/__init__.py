"""The results of statements, and how they are shown."""
