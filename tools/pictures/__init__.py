"""What people look at rather than read: the memory of a plan, and the page of a conversion."""
