"""Faces as meshes, and the effects that are drawn with them."""
