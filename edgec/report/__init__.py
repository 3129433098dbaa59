"""What a person reads: terminal summaries."""
