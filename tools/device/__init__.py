"""The host's side of the serial line: streams images to a device that learns, and fetches what it learned."""
