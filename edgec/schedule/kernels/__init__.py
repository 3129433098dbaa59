"""The variants of each family of kernels, a module with a list VARIANTS for each."""
