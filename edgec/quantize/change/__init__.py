"""Changes a float model into an int8 one: recipes, their steps, the conversion itself."""
