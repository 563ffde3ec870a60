"""microtrain: on-device training for microcontrollers."""

__version__ = "0.1.0"
