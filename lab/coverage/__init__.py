"""How much of Python and of the portable C the tests run: lines and branches, room by room."""
