"""`python -m microtrain.convert.export`."""

from microtrain.base.launch import launch

if __name__ == "__main__":
    launch("microtrain.convert.export", "microtrain export-library")
