"""Float convolutions and matrix products by register tiles
(csrc/simd/ek_gemm_f32_simd.h): packing and choices.
"""
