"""How well fleets learn, what they send, what can be seen in it, and what they survive."""
