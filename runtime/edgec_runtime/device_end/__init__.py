"""The agent that a link sends first: slots, wire, trust, facts.

Standard library only (edgec_devices/stream.py).
"""
