"""The library: a model and the engine as one folder of C that any firmware can hold (docs/embed.md)."""
