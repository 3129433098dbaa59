"""What is kept of a recipe: its way or its guard, by samples held back from both."""
