"""Federated learning: boards that learn apart and share what they have learned, with Flower between them."""
