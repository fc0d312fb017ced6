"""What Text and Retrieval have in common: documents, pairs of them, and tasks made of them."""
