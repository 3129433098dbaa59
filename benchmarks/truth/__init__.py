"""Estimates of the boards beside times that others have published (`make truth`)."""
