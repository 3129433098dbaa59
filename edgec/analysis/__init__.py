"""Facts about a graph that several passes and the quantizer ask for."""
