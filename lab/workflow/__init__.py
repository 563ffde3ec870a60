"""The jobs of the workflow, replayed in a bare Debian root: what a stranger's machine would do."""
