/* Between element types by value. The types are literals, so that inlining leaves one loop. */
#ifndef EK_CAST_H
#define EK_CAST_H
#include "ek_base.h"

enum { EK_FLOAT32, EK_INT8, EK_UINT8, EK_INT16, EK_INT32, EK_INT64, EK_BOOL };

EK_KERNEL int64_t ek_load_integer(const void *x, int type, size_t i) {
    switch (type) {
    case EK_INT8: return ((const int8_t *)x)[i];
    case EK_INT16: return ((const int16_t *)x)[i];
    case EK_INT32: return ((const int32_t *)x)[i];
    case EK_INT64: return ((const int64_t *)x)[i];
    default: return ((const uint8_t *)x)[i];
    }
}

EK_KERNEL void ek_store_integer(void *y, int type, size_t i, int64_t v) {
    switch (type) {
    case EK_INT8: ((int8_t *)y)[i] = (int8_t)v; break;
    case EK_INT16: ((int16_t *)y)[i] = (int16_t)v; break;
    case EK_INT32: ((int32_t *)y)[i] = (int32_t)v; break;
    case EK_INT64: ((int64_t *)y)[i] = v; break;
    case EK_BOOL: ((uint8_t *)y)[i] = v != 0; break;
    default: ((uint8_t *)y)[i] = (uint8_t)v;
    }
}

/* Towards zero, within the range of the type; not-a-number becomes 0. */
EK_KERNEL int64_t ek_float_to_integer(float v, int type) {
    const int64_t low[] = {0, INT8_MIN, 0, INT16_MIN, INT32_MIN, INT64_MIN}, high[] = {0, INT8_MAX, UINT8_MAX, INT16_MAX, INT32_MAX, INT64_MAX};
    if (type == EK_BOOL) return v != 0; /* and so is not-a-number */
    if (v != v) return 0;
    if (v >= 9223372036854775808.0f) return high[type];
    if (v < -9223372036854775808.0f) return low[type];
    return EK_CLAMP((int64_t)v, low[type], high[type]);
}

EK_KERNEL void ek_cast(const void *x, int from, void *y, int to, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (from == EK_FLOAT32)
            ek_store_integer(y, to, i, ek_float_to_integer(((const float *)x)[i], to));
        else if (to == EK_FLOAT32)
            ((float *)y)[i] = (float)ek_load_integer(x, from, i);
        else
            ek_store_integer(y, to, i, ek_load_integer(x, from, i));
    }
}

#endif
