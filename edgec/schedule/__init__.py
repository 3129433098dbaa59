"""For one core: which kernel variant computes each call, with which packing, tile and
order.
"""
