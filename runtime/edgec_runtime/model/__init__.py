"""Running the segments of a bundle: library, interpreters, threads, buffers of one inference."""
