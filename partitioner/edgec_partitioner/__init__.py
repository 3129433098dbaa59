"""Splits a graph between the Edge TPU and the CPU, with a reason for every op."""
