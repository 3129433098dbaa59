"""Back-ends: a Graph as C source, as a TFLite file, and its memory plan."""
