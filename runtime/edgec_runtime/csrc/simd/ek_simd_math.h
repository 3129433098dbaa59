/* Functions of floats on vectors. Errors in units of the last place of the true result, at most:
 * exp 2, expm1 2, log 1, log1p 2, logistic 4, tanh 3, erf 8, softplus 4. What is below 2^-126 may
 * be another number below it, or 0. */
#ifndef EK_SIMD_MATH_H
#define EK_SIMD_MATH_H
#include "ek_simd.h"

EK_KERNEL ek_vf ek_vf_exponent(ek_vi n) { return (ek_vf)((n + 127) << 23); } /* 2^n */

/* x = n ln 2 + r, n whole: e^r - 1, and n in the low bits of a float. */
typedef struct {
    ek_vi bits;
    ek_vf rest;
} ek_vexp_t;

EK_KERNEL ek_vexp_t ek_vf_exp_parts(ek_vf x) {
    const float magic = 12582912; /* 1.5 * 2^23: added, it leaves a whole number in the low bits */
    const ek_vf n = ek_vf_fma(x, ek_vf_set(1.44269504f), ek_vf_set(magic)), whole = n - magic;
    const ek_vf r = ek_vf_fnma(whole, ek_vf_set(-2.12194440e-4f),
                               ek_vf_fnma(whole, ek_vf_set(0.693359375f), x));
    const ek_vf low = ek_vf_fma(r, ek_vf_set(0.166665196f), ek_vf_set(0.5f)), square = r * r;
    const ek_vf high = ek_vf_fma(r, ek_vf_set(0.00836877804f), ek_vf_set(0.0416662209f));
    const ek_vf p = ek_vf_fma(ek_vf_fma(square, ek_vf_set(0.0013949736f), high), square, low);
    return (ek_vexp_t){(ek_vi)n, ek_vf_fma(p, square, r)};
}

/* e^x for |x| <= 87. */
EK_KERNEL ek_vf ek_vf_exp_near(ek_vf x) {
    const ek_vexp_t e = ek_vf_exp_parts(x);
    return (ek_vf)((ek_vi)(e.rest + 1.0f) + (e.bits << 23));
}
/* e^x; below the least normal number and above the largest as C has it. */
EK_KERNEL ek_vf ek_vf_exp(ek_vf x) {
    const ek_vexp_t e = ek_vf_exp_parts(ek_vf_max(ek_vf_min(x, ek_vf_set(105)), ek_vf_set(-105)));
    const ek_vi n = e.bits - 0x4b400000, half = n >> 1;
    return (e.rest + 1.0f) * ek_vf_exponent(half) * ek_vf_exponent(n - half);
}
/* e^x - 1 for x <= 0. */
EK_KERNEL ek_vf ek_vf_expm1(ek_vf x) {
    const ek_vexp_t e = ek_vf_exp_parts(ek_vf_max(x, ek_vf_set(-87)));
    const ek_vf scale = ek_vf_exponent(e.bits - 0x4b400000);
    return ek_vf_fma(e.rest, scale, scale - 1.0f);
}

/* 1 / (1 + e^-x) */
EK_KERNEL ek_vf ek_vf_logistic(ek_vf x) {
    const ek_vf bound = ek_vf_set(87);
    return ek_vf_reciprocal(ek_vf_exp_near(ek_vf_max(ek_vf_min(-x, bound), -bound)) + 1.0f);
}

/* Beyond 9.1 the result is 1 to the last place. */
EK_KERNEL ek_vf ek_vf_tanh(ek_vf x) {
    const ek_vf a = ek_vf_min(ek_vf_abs(x), ek_vf_set(9.1f)), z = a * a;
    const ek_vf far = 1.0f - ek_vf_reciprocal(ek_vf_exp_near(a + a) + 1.0f) * 2.0f;
    ek_vf p = ek_vf_fma(z, ek_vf_set(-0.00566207943f), ek_vf_set(0.0206033178f));
    p = ek_vf_fma(p, z, ek_vf_set(-0.0537296943f));
    p = ek_vf_fma(p, z, ek_vf_set(0.133313358f));
    p = ek_vf_fma(p, z, ek_vf_set(-0.333332777f));
    const ek_vf near = ek_vf_fma(p * z, a, a);
    return ek_vf_sign_of(ek_vf_select(ek_vf_less(z, ek_vf_set(0.4f)), near, far), x);
}

/* x P(x^2) / Q(x^2), the rational function with the least relative error on 0…3.83, where the
 * result is 1 to the last place. */
EK_KERNEL ek_vf ek_vf_erf(ek_vf x) {
    const ek_vf bound = ek_vf_set(3.83f), one = ek_vf_set(1);
    const ek_vf a = ek_vf_max(ek_vf_min(x, bound), -bound), z = a * a;
    ek_vf p = ek_vf_fma(z, ek_vf_set(2.12526857e-06f), ek_vf_set(0.000285973016f));
    ek_vf q = ek_vf_fma(z, ek_vf_set(3.89217385e-05f), ek_vf_set(0.0011410958f));
    p = ek_vf_fma(p, z, ek_vf_set(0.00364946318f));
    q = ek_vf_fma(q, z, ek_vf_set(0.0147359157f));
    p = ek_vf_fma(p, z, ek_vf_set(0.0524089746f));
    q = ek_vf_fma(q, z, ek_vf_set(0.112865426f));
    p = ek_vf_fma(p, z, ek_vf_set(0.187218353f));
    q = ek_vf_fma(q, z, ek_vf_set(0.499250859f));
    p = ek_vf_fma(p, z, ek_vf_set(1.12837911f));
    q = ek_vf_fma(q, z, one);
    return ek_vf_max(ek_vf_min(a * p * ek_vf_reciprocal(q), one), -one);
}

/* log x for normal x. */
EK_KERNEL ek_vf ek_vf_log_near(ek_vf x) {
    const ek_vi bits = (ek_vi)x - 0x3f3504f3; /* from sqrt(1/2) */
    const ek_vf n = ek_vf_of(bits >> 23), f = (ek_vf)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f,
                z = f * f;
    ek_vf p = ek_vf_fma(f, ek_vf_set(-0.0787014961f), ek_vf_set(0.128856957f));
    p = ek_vf_fma(p, f, ek_vf_set(-0.131265268f));
    p = ek_vf_fma(p, f, ek_vf_set(0.141804174f));
    p = ek_vf_fma(p, f, ek_vf_set(-0.166247055f));
    p = ek_vf_fma(p, f, ek_vf_set(0.200023264f));
    p = ek_vf_fma(p, f, ek_vf_set(-0.250008076f));
    p = ek_vf_fma(p, f, ek_vf_set(0.333333164f));
    ek_vf rest = ek_vf_fma(n, ek_vf_set(-2.12194440e-4f), p * f * z);
    rest = ek_vf_fma(z, ek_vf_set(-0.5f), rest);
    return ek_vf_fma(n, ek_vf_set(0.693359375f), f + rest);
}
/* log(1 + x) for x in 0..1. */
EK_KERNEL ek_vf ek_vf_log1p(ek_vf x) {
    const ek_vf u = x + 1.0f;
    return ek_vf_log_near(u) + (x - (u - 1.0f)) * ek_vf_reciprocal(u);
}

EK_KERNEL ek_vf ek_vf_softplus(ek_vf x) {
    const ek_vf e = ek_vf_exp_near(ek_vf_max(-ek_vf_abs(x), ek_vf_set(-87)));
    return ek_vf_log1p(e) + ek_vf_max(x, ek_vf_set(0));
}

#endif
