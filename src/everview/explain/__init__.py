"""How a view is maintained, as a tree, a document or text."""
