"""The device end: the program that a link sends to a device first (agent.py).

Its modules import only the standard library and each other (wire.py).
"""
