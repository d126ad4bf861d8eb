"""What a statement gives, and how it is shown."""
