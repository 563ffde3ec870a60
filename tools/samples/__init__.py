"""Image files and folders of classes, as a model takes them."""
