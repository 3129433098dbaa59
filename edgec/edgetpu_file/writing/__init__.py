"""Writes programs for the Edge TPU without edgetpu_compiler (docs/edgetpu-chip.md)."""
