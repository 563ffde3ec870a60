"""A PlatformIO project of the user's own, with the firmware's sources in it."""
