"""Reads the files that Google's edgetpu_compiler writes."""
