"""Functions of a firmware as C, which the host's compiler makes faster than what Unicorn makes of them.

    instruction > rules (integers, memory, reals) > blocks > source > guest.h

Blocks begin and end where Unicorn's do, so that what is counted of each is the same. What translated code
cannot do it hands over to Unicorn before the instruction: a register of a peripheral, a change of the masks.
"""
