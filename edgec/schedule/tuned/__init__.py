"""Schedules that a search found to be better than what analysis says, a file for each
core.
"""
