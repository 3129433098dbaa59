"""Knows the boards that edgec compiles for, and the devices that bundles run on."""
