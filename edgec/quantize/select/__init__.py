"""Selects a recipe's candidate or its guard, by samples held back from both."""
