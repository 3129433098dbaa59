/* Between element types by value. The types are literals, so that inlining leaves one loop. */
#ifndef EK_CAST_H
#define EK_CAST_H
#include "ek_base.h"

enum {
    EK_FLOAT32,
    EK_FLOAT16,
    EK_FLOAT64, /* a float16 is its bits, in a uint16_t */
    EK_INT8,
    EK_UINT8,
    EK_INT16,
    EK_UINT16,
    EK_INT32,
    EK_UINT32,
    EK_INT64,
    EK_UINT64,
    EK_BOOL
};

EK_KERNEL float ek_of_half(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31,
                   fraction = h & 1023;
    uint32_t bits = sign | (exponent + 112) << 23 | fraction << 13;
    float v;
    if (exponent == 31) bits = sign | 0x7f800000u | fraction << 13;
    if (exponent == 0) { /* 0 and subnormal numbers: whole multiples of 2^-24 */
        v = (float)fraction * 5.9604644775390625e-8f;
        memcpy(&bits, &v, 4);
        bits |= sign;
    }
    memcpy(&v, &bits, 4);
    return v;
}

/* To the nearest, ties to even. */
EK_KERNEL uint16_t ek_to_half(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    const uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (size >> 13 & 1023));
    if (size >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* rounds beyond 65504 */
    if (size < 0x38800000u) { /* below 2^-14: a whole multiple of 2^-24 */
        float small;
        memcpy(&small, &size, 4);
        return (uint16_t)(sign | (uint32_t)rintf(small * 16777216.0f));
    }
    return (uint16_t)(sign | (((size + 0xfffu + (size >> 13 & 1)) >> 13) - (112u << 10)));
}

/* A uint64 comes as the int64 of the same bits. */
EK_KERNEL int64_t ek_load_integer(const void *x, int type, size_t i) {
    switch (type) {
    case EK_INT8:
        return ((const int8_t *)x)[i];
    case EK_INT16:
        return ((const int16_t *)x)[i];
    case EK_UINT16:
        return ((const uint16_t *)x)[i];
    case EK_INT32:
        return ((const int32_t *)x)[i];
    case EK_UINT32:
        return ((const uint32_t *)x)[i];
    case EK_INT64:
        return ((const int64_t *)x)[i];
    case EK_UINT64:
        return (int64_t)((const uint64_t *)x)[i];
    default:
        return ((const uint8_t *)x)[i];
    }
}

EK_KERNEL void ek_store_integer(void *y, int type, size_t i, int64_t v) {
    switch (type) {
    case EK_INT8:
        ((int8_t *)y)[i] = (int8_t)v;
        break;
    case EK_INT16:
        ((int16_t *)y)[i] = (int16_t)v;
        break;
    case EK_UINT16:
        ((uint16_t *)y)[i] = (uint16_t)v;
        break;
    case EK_INT32:
        ((int32_t *)y)[i] = (int32_t)v;
        break;
    case EK_UINT32:
        ((uint32_t *)y)[i] = (uint32_t)v;
        break;
    case EK_INT64:
        ((int64_t *)y)[i] = v;
        break;
    case EK_UINT64:
        ((uint64_t *)y)[i] = (uint64_t)v;
        break;
    case EK_BOOL:
        ((uint8_t *)y)[i] = v != 0;
        break;
    default:
        ((uint8_t *)y)[i] = (uint8_t)v;
    }
}

EK_KERNEL double ek_load_float(const void *x, int type, size_t i) {
    if (type == EK_FLOAT64) return ((const double *)x)[i];
    return type == EK_FLOAT16 ? ek_of_half(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

EK_KERNEL void ek_store_float(void *y, int type, size_t i, double v) {
    if (type == EK_FLOAT64)
        ((double *)y)[i] = v;
    else if (type == EK_FLOAT16)
        ((uint16_t *)y)[i] = ek_to_half((float)v);
    else
        ((float *)y)[i] = (float)v;
}

/* Towards zero, within the range of the type; not-a-number becomes 0. */
EK_KERNEL int64_t ek_float_to_integer(double v, int type) {
    static const int64_t low[] = {0, 0, 0, INT8_MIN, 0, INT16_MIN, 0, INT32_MIN, 0, INT64_MIN, 0};
    static const int64_t high[] = {
        0, 0, 0, INT8_MAX, UINT8_MAX, INT16_MAX, UINT16_MAX, INT32_MAX, UINT32_MAX, INT64_MAX, -1};
    if (type == EK_BOOL) return v != 0; /* and so is not-a-number */
    if (v != v) return 0;
    if (type == EK_UINT64 && v >= 9223372036854775808.0)
        return v >= 18446744073709551616.0 ? -1 : (int64_t)(uint64_t)v;
    if (type == EK_UINT64) return v < 0 ? 0 : (int64_t)v;
    if (v >= 9223372036854775808.0) return high[type];
    if (v < -9223372036854775808.0) return low[type];
    return EK_CLAMP((int64_t)v, low[type], high[type]);
}

EK_KERNEL int ek_is_float(int type) { return type <= EK_FLOAT64; }

#if defined(EK_ELEMENT_F16)
/* Between floats and halves by the processor's own instructions: whether that is what is wanted. */
EK_KERNEL bool ek_cast_half(const void *x, int from, void *y, int to, size_t n) {
    if (from == EK_FLOAT32 && to == EK_FLOAT16)
        for (size_t i = 0; i < n; i++) ((ek_half *)y)[i] = (ek_half)((const float *)x)[i];
    else if (from == EK_FLOAT16 && to == EK_FLOAT32)
        for (size_t i = 0; i < n; i++) ((float *)y)[i] = (float)((const ek_half *)x)[i];
    else
        return false;
    return true;
}
#endif

EK_KERNEL void ek_cast(const void *x, int from, void *y, int to, size_t n) {
#if defined(EK_ELEMENT_F16)
    if (ek_cast_half(x, from, y, to, n)) return;
#endif
    for (size_t i = 0; i < n; i++) {
        if (ek_is_float(from) && ek_is_float(to))
            ek_store_float(y, to, i, ek_load_float(x, from, i));
        else if (ek_is_float(from))
            ek_store_integer(y, to, i, ek_float_to_integer(ek_load_float(x, from, i), to));
        else if (to == EK_FLOAT32)
            ((float *)y)[i] = from == EK_UINT64 ? (float)((const uint64_t *)x)[i]
                                                : (float)ek_load_integer(x, from, i);
        else if (ek_is_float(to))
            ek_store_float(y, to, i,
                           from == EK_UINT64 ? (double)((const uint64_t *)x)[i]
                                             : (double)ek_load_integer(x, from, i));
        else
            ek_store_integer(y, to, i, ek_load_integer(x, from, i));
    }
}

#endif
