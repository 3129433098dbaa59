"""Int8 convolutions and matrix products as packed GEMM: what csrc/ek_gemm_s8.h and the
tiles of each ISA are given.
"""
