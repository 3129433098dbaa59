"""Judges a network on labelled pictures by the measure of its task.

A measure reads the labels of a data set (`Measure.read`), notes how good one result is
(`Measure.observe`), and makes the figures of the notes of all pictures (`Measure.score`).
"""
