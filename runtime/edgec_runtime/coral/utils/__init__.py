"""Finds the Edge TPU, makes interpreters, and reads files of labels."""
