"""Runs other programs for edgec: C compilers and edgetpu_compiler."""
