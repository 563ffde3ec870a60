"""Memory: an offset in the arena for every tensor, its proof, and what spare bytes are used for."""
