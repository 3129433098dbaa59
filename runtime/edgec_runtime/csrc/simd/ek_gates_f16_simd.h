/* Gates of one half: what ek_gates_f32_simd.h has for floats, computed with halves.
 *
 * A gate is a distribution function G that is symmetric, G(-x) = 1 - G(x): Phi of GELU, sigma of
 * SiLU. With a = |x| and the tail D(a) = G(-a),
 *
 *     x G(x) = max(x, 0) - a D(a),
 *
 * where a D(a) is at most 0.28, and below 2^-11 from a bound on, where the result is exactly x or
 * 0. D(a) is R(t)^2 for a polynomial R of degree 6 in
 *
 *     t = 1.5 min(a, bound) / bound - 0.5, from -0.5 to 1.
 *
 * The root of a tail falls half as steeply, so that few terms give it, and its square is accurate
 * where the tail is small. t has its 0 where gates bend most, so that Horner's rule rounds least
 * there. The terms are halves, found by a search from the polynomial of least error: over all
 * halves x, roundings included, they have the least errors, with means near 0 for normal x, or
 * means over an image would keep them.
 *
 * Errors are at most 2^-10, for x above 1 that part of x; of GELU 2^-10.8, of sigma 2^-9.8.
 */
#ifndef EK_GATES_F16_SIMD_H
#define EK_GATES_F16_SIMD_H
#include "ek_simd_f16.h"
#include "ek_unary_simd.h"

/* Vectors whose steps alternate, so that a core waits for none of them. */
enum { EK_GATE_TERMS = 7, EK_GATE_VECTORS = 4 };
#define EK_EACH_GATE(I) EK_UNROLL for (int I = 0; I < EK_GATE_VECTORS; I++)

typedef struct {
    ek_half bound, step;          /* 1.5 / bound */
    ek_half terms[EK_GATE_TERMS]; /* of R, those of the highest powers first */
} ek_gate_t;

static const ek_gate_t ek_gate_gelu = {
    4.3984375f, 1.5f / 4.3984375f, {0.10846f, 0.0367f, -0.5396f, 0.3203f, 0.554f, -0.747f, 0.267f}};
static const ek_gate_t ek_gate_gelu_tanh = {
    4.1015625f,
    1.5f / 4.1015625f,
    {0.05264f, 0.02686f, -0.3923f, 0.3074f, 0.4429f, -0.7305f, 0.2932f}};
static const ek_gate_t ek_gate_sigma = {
    10.0f, 1.5f / 10.0f, {-0.7188f, 1.394f, -0.5415f, -0.643f, 0.9233f, -0.5986f, 0.185f}};

/* The terms in every lane, -0.5 and 1 after them. Steps load them each time: an addend in a
 * register would be copied first, which takes a turn of the multipliers. */
enum { EK_GATE_HALF = EK_GATE_TERMS, EK_GATE_ONE };
typedef struct {
    ek_half of[EK_GATE_TERMS + 2][EK_VL16] __attribute__((aligned(64)));
} ek_gate_lanes_t;

EK_KERNEL void ek_gate_lanes(ek_gate_lanes_t *lanes, const ek_gate_t *g) {
    for (int i = 0; i < EK_GATE_TERMS; i++) ek_vf16_store(lanes->of[i], ek_vf16_set(g->terms[i]));
    ek_vf16_store(lanes->of[EK_GATE_HALF], ek_vf16_set(-0.5f));
    ek_vf16_store(lanes->of[EK_GATE_ONE], ek_vf16_set(1));
}

/* a = min(|x|, bound), and R of it. */
EK_KERNEL void ek_gate_roots(const ek_vf16 *x, ek_vf16 *a, ek_vf16 *root, const ek_gate_t *g,
                             const ek_gate_lanes_t *lanes) {
    ek_vf16 t[EK_GATE_VECTORS];
    EK_EACH_GATE(i) a[i] = ek_vf16_min(ek_vf16_abs(x[i]), ek_vf16_set(g->bound));
    EK_EACH_GATE(i)
    t[i] = ek_vf16_fma_at(a[i], ek_vf16_set(g->step), lanes->of[EK_GATE_HALF]);
    EK_EACH_GATE(i)
    root[i] = ek_vf16_fma_at(ek_vf16_copy(lanes->of[0]), t[i], lanes->of[1]);
    EK_UNROLL for (int k = 2; k < EK_GATE_TERMS; k++) EK_EACH_GATE(i) root[i] =
        ek_vf16_fma_at(root[i], t[i], lanes->of[k]);
}

/* max(x, 0) - a R^2 */
EK_KERNEL ek_vf16 ek_gate_times(ek_vf16 x, ek_vf16 a, ek_vf16 root, const ek_gate_lanes_t *lanes) {
    (void)lanes;
    return ek_vf16_fnma(a * root, root, ek_vf16_max(x, ek_vf16_set(0)));
}
/* R^2 for negative x, and 1 - R^2 for others. */
EK_KERNEL ek_vf16 ek_gate_alone(ek_vf16 x, ek_vf16 a, ek_vf16 root, const ek_gate_lanes_t *lanes) {
    (void)a;
    const ek_vf16 rest = ek_vf16_fnma(root, root, ek_vf16_copy(lanes->of[EK_GATE_ONE]));
    return ek_vf16_select(ek_vf16_less(x, ek_vf16_set(0)), root * root, rest);
}

/* y = RESULT of the vectors of x, by a gate. */
#define EK_GATE_F16(NAME, GATE, RESULT)                                                            \
    EK_SHARED void NAME(const ek_half *x, ek_half *y, int n, const ek_coefficients_t *k, int part, \
                        int parts) {                                                               \
        ek_gate_lanes_t lanes;                                                                     \
        (void)k;                                                                                   \
        ek_gate_lanes(&lanes, &GATE);                                                              \
        EK_MAP(ek_half, ek_half, EK_GATE_VECTORS *EK_VL16, ek_vf16 v[EK_GATE_VECTORS];             \
               ek_vf16 a[EK_GATE_VECTORS]; ek_vf16 root[EK_GATE_VECTORS];                          \
               EK_EACH_GATE(i) v[i] = ek_vf16_load(x + i * EK_VL16);                               \
               ek_gate_roots(v, a, root, &GATE, &lanes); EK_EACH_GATE(i)                           \
                   ek_vf16_store(y + i * EK_VL16, RESULT(v[i], a[i], root[i], &lanes)))            \
    }

EK_GATE_F16(ek_gelu_f16_simd, ek_gate_gelu, ek_gate_times)
EK_GATE_F16(ek_gelu_tanh_f16_simd, ek_gate_gelu_tanh, ek_gate_times)
EK_GATE_F16(ek_silu_f16_simd, ek_gate_sigma, ek_gate_times)
EK_GATE_F16(ek_logistic_f16_simd, ek_gate_sigma, ek_gate_alone)

/* x min(max(x + 3, 0), 6) / 6; the sum is exact near -3, where the result is small. */
EK_SHARED void ek_hard_swish_f16_simd(const ek_half *x, ek_half *y, int n,
                                      const ek_coefficients_t *k, int part, int parts) {
    (void)k;
    EK_MAP(
        ek_half, ek_half, EK_GATE_VECTORS * EK_VL16, EK_EACH_GATE(i) {
            const ek_vf16 v = ek_vf16_load(x + i * EK_VL16);
            const ek_vf16 from_0 = ek_vf16_max(v + ek_vf16_set(3), ek_vf16_set(0));
            const ek_vf16 gate = ek_vf16_min(from_0, ek_vf16_set(6)) * ek_vf16_set(1.0f / 6);
            ek_vf16_store(y + i * EK_VL16, v * gate);
        })
}

#endif
