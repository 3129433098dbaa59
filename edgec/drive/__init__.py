"""What a verb does, step by step."""
