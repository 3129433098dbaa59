"""Reads the instructions in a compiled file, writes them as text, and reads this text."""
