"""Selects a recipe's way or its guard, by samples held back from both."""
