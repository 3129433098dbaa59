"""Executes the instructions of a compiled file as the Edge TPU would (docs/edgetpu-chip.md).

It knows what each instruction does, and nothing of the network that it was made of.
"""
