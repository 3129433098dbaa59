"""Packed GEMM in int8: shapes, schedules and weights for csrc/ek_gemm_s8.h."""
