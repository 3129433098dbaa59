/* Functions of floats on vectors. Errors in units of the last place of the true result, at most:
 * exp 2, expm1 2, log 1, log1p 2, logistic 4, tanh 3, erf 8, softplus 4. What is below 2^-126 may
 * be another number below it, or 0. */
#ifndef EK_SIMD_MATH_H
#define EK_SIMD_MATH_H
#include "ek_simd.h"

typedef uint32_t ek_vu __attribute__((vector_size(sizeof(ek_vi))));

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

/* e^x for -87 <= x <= 88. The bits of what is no number may overflow: unsigned, where they may. */
EK_KERNEL ek_vf ek_vf_exp_near(ek_vf x) {
    const ek_vexp_t e = ek_vf_exp_parts(x);
    return (ek_vf)((ek_vu)(e.rest + 1.0f) + ((ek_vu)e.bits << 23));
}
/* e^(factor x) for x <= 0. Bounded above too: where something is not a number, x may be more. */
EK_KERNEL ek_vf ek_vf_exp_below(ek_vf x, float factor) {
    return ek_vf_exp_near(ek_vf_min(ek_vf_max(x * factor, ek_vf_set(-87)), ek_vf_set(87)));
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

/* 1 / (1 + e^-x); 1 / e^88 is below the least normal number. */
EK_KERNEL ek_vf ek_vf_logistic(ek_vf x) {
    const ek_vf bounded = ek_vf_max(ek_vf_min(-x, ek_vf_set(88)), ek_vf_set(-87));
    return ek_vf_reciprocal(ek_vf_exp_near(bounded) + 1.0f);
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

/* x Phi(x) = h + |h| erf(sqrt(2) |h|) for h = x / 2, where erf(sqrt(2) a) = a P(t) for t = 2 (a /
 * 2.525)^2 - 1 from -1 to 1: P has the least error that a polynomial of degree 12 can have there.
 * For a = 2.525 and more, a P(t) is 1, so that the sum is exactly x or 0. Within 3.5e-7 |x|. */
enum { EK_GELU_TERMS = 13, EK_GELU_VECTORS = EK_VL > 4 ? 2 : 4 };

/* The terms in every lane, those of the highest powers first, and -1 after them. */
typedef struct {
    float of[EK_GELU_TERMS + 1][EK_VL] __attribute__((aligned(64)));
} ek_gelu_terms_t;

EK_KERNEL void ek_gelu_terms(ek_gelu_terms_t *terms) {
    static const float of[EK_GELU_TERMS + 1] = {0.0030291609f,  -0.00751998276f,
                                                0.00694336975f, -0.0108357137f,
                                                0.0276928525f,  -0.0472132266f,
                                                0.0672951415f,  -0.094313249f,
                                                0.126446515f,   -0.161400914f,
                                                0.204611287f,   -0.278580874f,
                                                0.559885263f,   -1};
    for (int i = 0; i <= EK_GELU_TERMS; i++) ek_vf_store(terms->of[i], ek_vf_set(of[i]));
}

#define EK_EACH_GELU(I) EK_UNROLL for (int I = 0; I < EK_GELU_VECTORS; I++)
/* In place. In order, a core waits for none of so many vectors. */
EK_KERNEL void ek_vf_gelu(ek_vf *v, const ek_gelu_terms_t *terms) {
    ek_vf a[EK_GELU_VECTORS], t[EK_GELU_VECTORS], p[EK_GELU_VECTORS];
    EK_EACH_GELU(i) v[i] = v[i] * 0.5f;
    EK_EACH_GELU(i) a[i] = ek_vf_min(ek_vf_abs(v[i]), ek_vf_set(2.525f));
    EK_EACH_GELU(i)
    t[i] = ek_vf_fma(a[i] * a[i], ek_vf_set(0.313694745f), ek_vf_copy(terms->of[EK_GELU_TERMS]));
    EK_EACH_GELU(i) p[i] = ek_vf_fma(ek_vf_copy(terms->of[0]), t[i], ek_vf_copy(terms->of[1]));
    EK_UNROLL for (int k = 2; k < EK_GELU_TERMS; k++) EK_EACH_GELU(i) p[i] =
        ek_vf_fma(p[i], t[i], ek_vf_copy(terms->of[k]));
    EK_EACH_GELU(i) v[i] = ek_vf_fma(ek_vf_abs(v[i]), a[i] * p[i], v[i]);
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

#define EK_ZERO ek_vf_set(0)
#define EK_BETWEEN(v, low, high) ek_vf_min(ek_vf_max(v, ek_vf_set(low)), ek_vf_set(high))

/* tanh of softplus is w / (w + 2) for w = e^v (e^v + 2); above 20 it is 1. */
EK_KERNEL ek_vf ek_vf_mish(ek_vf v) {
    const ek_vf e = ek_vf_exp_near(EK_BETWEEN(v, -87, 20)), w = e * (e + 2.0f);
    return w * ek_vf_reciprocal(w + 2.0f) * v;
}
#endif
