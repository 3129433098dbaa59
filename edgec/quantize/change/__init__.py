"""What changes a float model into an int8 one: recipes, their steps, and the conversion itself."""
