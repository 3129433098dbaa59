"""The Edge TPU in a process of its own, to be ended and started again."""
