"""The state of the house in numbers: build/house.json. A quick test keeps those that may not get worse."""
