"""Faces as meshes of 468 points: their pose, their motion, and pictures warped by them."""
