"""Sets the inputs and reads the outputs of an interpreter, by kind of network."""
