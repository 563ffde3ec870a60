"""What a network forgets when classes come one after the other, and what a replay buffer keeps."""
