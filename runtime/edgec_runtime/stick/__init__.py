"""The Edge TPU in a process of its own, which can be ended and started again."""
