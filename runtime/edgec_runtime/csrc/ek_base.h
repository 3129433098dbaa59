/* What all kernels share. C11; no allocation; nothing of libc but string.h and math.h.
 *
 * A kernel is one static inline function that generated code calls with literal shapes, so that the
 * compiler specialises it: names are ek_<op>_<type>, types as in Arm's intrinsics (f32, s8, u8,
 * s32). Images are NHWC. */
#ifndef EK_BASE_H
#define EK_BASE_H
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Elements of float tensors: float32, and float16 where the compiler has it. */
#define EK_ELEMENT_F32 float
#if defined(__FLT16_MAX__)
#define EK_ELEMENT_F16 ek_half
typedef _Float16 ek_half;
#endif

#define EK_KERNEL static inline __attribute__((always_inline, unused))
/* A function that all ops of a segment share, however they call it. */
#if defined(__clang__)
#define EK_SHARED static __attribute__((noinline, unused))
#else
#define EK_SHARED static __attribute__((noinline, noclone, unused))
#endif
/* One op of a segment: a name in a profile. noipa: gcc 12 at -O1 deduces of some gathers that they
 * write nothing (after its ivopts has rewritten their addresses), and drops the calls. */
#if defined(__clang__)
#define EK_OP static __attribute__((noinline))
#else
#define EK_OP static __attribute__((noipa))
#endif
/* Before a loop of few steps, all of them known: written out; before one of many: not. */
#if defined(__clang__)
#define EK_UNROLL _Pragma("clang loop unroll(full)")
#define EK_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define EK_UNROLL _Pragma("GCC unroll 16")
#define EK_NO_UNROLL _Pragma("GCC unroll 1")
#endif
/* Scratch of the kernels that an op calls. */
#define EK_STACK(bytes) unsigned char stack[bytes] __attribute__((aligned(64)))
#define EK_ARENA static __attribute__((aligned(64))) unsigned char
#define EK_API __attribute__((visibility("default")))

/* A kernel for each type of a set: M(NAME_<suffix>, type, type in which arithmetic wraps, ...).
 * Plain int8 is i8: ek_*_s8 are of quantized int8. edgec/emit/c.py knows these sets by their names.
 */
#define EK_OF_SIGNED(NAME, M, ...)                \
    M(NAME##_i8, int8_t, uint32_t, __VA_ARGS__)   \
    M(NAME##_s16, int16_t, uint32_t, __VA_ARGS__) \
    M(NAME##_s32, int32_t, uint32_t, __VA_ARGS__) \
    M(NAME##_s64, int64_t, uint64_t, __VA_ARGS__)
#define EK_OF_UNSIGNED(NAME, M, ...)               \
    M(NAME##_u8, uint8_t, uint32_t, __VA_ARGS__)   \
    M(NAME##_u16, uint16_t, uint32_t, __VA_ARGS__) \
    M(NAME##_u32, uint32_t, uint32_t, __VA_ARGS__) \
    M(NAME##_u64, uint64_t, uint64_t, __VA_ARGS__)
#define EK_OF_INTEGERS(NAME, M, ...)   \
    EK_OF_SIGNED(NAME, M, __VA_ARGS__) \
    EK_OF_UNSIGNED(NAME, M, __VA_ARGS__)

/* Of floats: NaN where a is NaN; b is a number. */
#define EK_MIN(a, b) ((a) > (b) ? (b) : (a))
#define EK_MAX(a, b) ((a) < (b) ? (b) : (a))
#define EK_CLAMP(v, low, high) ((v) < (low) ? (low) : (v) > (high) ? (high) : (v))
/* Of two floats, NaN where either is NaN. */
#if defined(__aarch64__) && defined(__clang__)
#define EK_MINIMUM(a, b) __builtin_elementwise_minimum(a, b)
#define EK_MAXIMUM(a, b) __builtin_elementwise_maximum(a, b)
#else
#define EK_MINIMUM(a, b) ((b) != (b) ? (b) : EK_MIN(a, b))
#define EK_MAXIMUM(a, b) ((b) != (b) ? (b) : EK_MAX(a, b))
#endif

/* Of a row of work, the columns [from, to) that are the share of one part of so many: all parts get
 * as many of rows x columns, counted along rows, so that a part has few rows, or `down` columns. */
typedef struct {
    int from, to;
} ek_range_t;
EK_KERNEL ek_range_t ek_share_of(int row, int rows, int columns, int down, int part, int parts) {
    const int64_t all = (int64_t)rows * columns;
    const int each = down ? rows : 1,
              before = down ? row : row * columns; /* steps from column to column */
    const int from = EK_MAX((int)(all * part / parts) - before, 0);
    const int to = EK_MAX((int)(all * (part + 1) / parts) - before, 0);
    const ek_range_t range = {(from + each - 1) / each, EK_MIN((to + each - 1) / each, columns)};
    return range;
}

/* The part-th of `parts` shares of n elements, in whole units. */
typedef struct {
    int from, to;
} ek_share_t;

EK_KERNEL ek_share_t ek_share(int n, int unit, int part, int parts) {
    const int64_t units = ((int64_t)n + unit - 1) / unit;
    const int64_t from = units * part / parts * unit, to = units * (part + 1) / parts * unit;
    return (ek_share_t){(int)EK_MIN(from, n), (int)EK_MIN(to, n)};
}

enum {
    EK_LANES = 16
}; /* channels that a plain kernel accumulates at once, for the compiler to vectorise */

/* The clamp of a fused activation. */
typedef struct {
    float low, high;
} ek_activation_t;

/* Up to six dimensions of an output, and the element strides of the inputs (0 where one is
 * broadcast). */
typedef struct {
    int dim[6], a[6], b[6];
} ek_broadcast_t;

#define EK_FOR_ND(d, i0, i1, i2, i3, i4)            \
    for (int i0 = 0; i0 < (d)[0]; i0++)             \
        for (int i1 = 0; i1 < (d)[1]; i1++)         \
            for (int i2 = 0; i2 < (d)[2]; i2++)     \
                for (int i3 = 0; i3 < (d)[3]; i3++) \
                    for (int i4 = 0; i4 < (d)[4]; i4++)
#define EK_AT_ND(s, i0, i1, i2, i3, i4) \
    ((s)[0] * (i0) + (s)[1] * (i1) + (s)[2] * (i2) + (s)[3] * (i3) + (s)[4] * (i4))

#endif
