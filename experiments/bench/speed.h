/* What the loops in C share: the settings, the chain of weights and the combiners.
 *
 * A run of the library is timed against two plain loops over time of the same algorithm, for any m
 * and r, single-threaded, in float32. They differ in how the learners lie in memory: together
 * (speed_together.c) or side by side (speed_side_by_side.c). Both have one function per family of
 * learners. Newton learners update P as P <- (P - v v')/beta, and have no cap on P unless one is
 * asked for. The Newton combiner keeps a square root of P, capped, as the library's: on m nearly
 * equal predictions the P form reaches NaN in float32 within 1e5 steps. Data reuse is in closed
 * form, one update whatever the number of repeats. The sums behind delta are plain: -ffast-math
 * would remove Kahan's compensation anyway. Samples are not checked for NaN.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

#define LARGEST_REUSE 64
#define SMALLEST_DELTA 1e-6f
#define SLACK 1.02f /* times a cap, before anything is brought back to it */

enum { WEIGHTED, DATA_REUSE, RANDOM_UPDATE };
enum { COMBINE_NSGD, COMBINE_NEWTON };

typedef struct {
    int32_t m, r, mode, max_reuse, combiner;
    float target_mse, dependence;
    float step_size;         /* of the SGD learners */
    float forgetting, ridge, max_variance; /* of the Newton learners; a cap of 0 is none */
    float combiner_step, combiner_epsilon;
    float combiner_forgetting, combiner_ridge, combiner_max_variance;
    uint32_t seed;
} settings;

/* What every booster carries besides its learners, and the scratch of one step. */
typedef struct {
    float *y, *e, *lam, *total, *Lam, *loss, *z;
    float *root, *f, *v; /* of the Newton combiner */
    int turn;
} booster;

/* Learners are taken in groups of LANES, and arrays over them are as long as whole groups, so that
 * no vector is cut short. The places behind the last learner hold learners whose estimates, errors
 * and coefficients are always 0. 24 is three vectors of 8, the least that hold 20 learners. With 16
 * or fewer GCC 12 unrolls the loop over a group and then vectorises the loop around it instead:
 * boosted SGD at r = 90 then takes three times as long. */
#define LANES 24
#define RUN 6 /* learners whose sum is taken one after the other; divides LANES */
static inline int padded(int m) { return (m + LANES - 1) / LANES * LANES; }

static float *zeros(size_t n) {
    size_t size = (n * sizeof(float) + 63) / 64 * 64;
    return memset(aligned_alloc(64, size), 0, size);
}

static booster booster_new(const settings *s) {
    int m = s->m, n = padded(m);
    booster b = {zeros(n), zeros(n), zeros(n), zeros(n), zeros(n), zeros(n), zeros(n),
                 zeros((size_t)n * n), zeros(n), zeros(n), 0};
    float variance = fminf(1 / s->combiner_ridge, s->combiner_max_variance);
    for (int k = 0; k < m; k++) b.z[k] = 1.0f / m;
    for (int k = 0; k < m; k++) b.root[(size_t)k * n + k] = sqrtf(variance);
    return b;
}

static void booster_free(booster *b) {
    free(b->y), free(b->e), free(b->lam), free(b->total), free(b->Lam), free(b->loss);
    free(b->z), free(b->root), free(b->f), free(b->v);
}

/* Numbers below 1e-38 count as zero, as they do in XLA and in any program linked with -ffast-math:
 * a weight that fades would otherwise slow every product it meets. */
static unsigned flush_denormals(void) {
#ifdef __SSE__
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);
    return before;
#else
    return 0;
#endif
}

static void restore_denormals(unsigned before) {
#ifdef __SSE__
    _mm_setcsr(before);
#else
    (void)before;
#endif
}

static inline float dot(int n, const float *restrict a, const float *restrict b) {
    float sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

#ifdef __GNUC__
#define OWN_FUNCTION __attribute__((noinline))
#else
#define OWN_FUNCTION
#endif

/* lambda from l and delta, then delta and Lambda. Not inlined: inside its callers the compiler no
 * longer sees that the arrays are apart, and takes the logarithms and exponentials one by one. */
OWN_FUNCTION static void emphasis(int n, float dependence, const float *restrict total,
                                  const float *restrict e, float *restrict lam,
                                  float *restrict Lam, float *restrict loss) {
    for (int k = 0; k < n; k++) {
        float delta = fmaxf(loss[k] / fmaxf(Lam[k], 1e-30f), SMALLEST_DELTA);
        float weight = expf(fminf(dependence * total[k] * logf(delta), 0));
        lam[k] = weight;
        Lam[k] += weight;
        loss[k] += weight * fminf(0.25f * e[k] * e[k], 1);
    }
}

/* Errors -> l -> lambda. The sums l are taken in runs that do not wait for each other. */
static void chain(const settings *s, booster *b, float d) {
    int m = s->m, n = padded(m);
    float *restrict e = b->e, *restrict total = b->total, *restrict y = b->y;
    float target = s->target_mse, before = 0;
    for (int k = 0; k < m; k++) e[k] = d - y[k];
    for (int k = 0; k < n; k += RUN) {
        float l = 0;
        for (int j = 0; j < RUN; j++) {
            total[k + j] = before + l;
            l += target - e[k + j] * e[k + j];
        }
        before += l;
    }
    emphasis(n, s->dependence, total, e, b->lam, b->Lam, b->loss);
}

/* a'b over the learners, for many in a row: no sum waits for the sum before it. */
static inline float over_learners(int n, const float *restrict a, const float *restrict b) {
    float sum[LANES] = {0}, all = 0;
    for (int g = 0; g < n; g += LANES)
        for (int k = 0; k < LANES; k++) sum[k] += a[g + k] * b[g + k];
    for (int k = 0; k < LANES; k++) all += sum[k];
    return all;
}

/* v = T'f. */
static void transposed(int n, const float *restrict T, const float *restrict f, float *restrict v) {
    for (int g = 0; g < n; g += LANES) {
        float a[LANES] = {0}, b[LANES] = {0};
        for (int i = 0; i < n; i += 2) {
            const float *restrict row = T + (size_t)i * n + g;
            for (int k = 0; k < LANES; k++) a[k] += f[i] * row[k];
            for (int k = 0; k < LANES; k++) b[k] += f[i + 1] * row[n + k];
        }
        for (int k = 0; k < LANES; k++) v[g + k] = a[k] + b[k];
    }
}

/* T <- (T - a f v') grow. */
static void lower(int n, float *restrict T, const float *restrict f, const float *restrict v,
                  float a, float grow) {
    for (int g = 0; g < n; g += LANES)
        for (int i = 0; i < n; i++) {
            float *restrict row = T + (size_t)i * n + g;
            float step = a * f[i];
            for (int k = 0; k < LANES; k++) row[k] = (row[k] - step * v[g + k]) * grow;
        }
}

/* f = T y, for the estimate and, unless T is changed in between, for the update after it. */
static void measure(const booster *b, int n) {
    for (int i = 0; i < n; i++) b->f[i] = over_learners(n, b->root + (size_t)i * n, b->y);
}

/* The combined estimate z'y. Least squares holds back what it adds to the mean where predictions
 * are new to it (the forward form). */
static inline float estimate(const settings *s, const booster *b) {
    int m = s->m, n = padded(m);
    float all = dot(n, b->z, b->y);
    if (s->combiner != COMBINE_NEWTON) return all;
    float mean = 0, beta = s->combiner_forgetting;
    for (int k = 0; k < n; k++) mean += b->y[k];
    mean /= m;
    measure(b, n);
    return mean + (all - mean) * (beta / (beta + dot(n, b->f, b->f)));
}

/* Least squares of weight 1 on the predictions y, on a square root T of P = T'T (Potter's form).
 * One diagonal entry of P a step, the next in turn, is brought back to the cap. */
static void combine_newton(const settings *s, booster *b, float d) {
    int m = s->m, n = padded(m), turn = b->turn;
    float beta = s->combiner_forgetting, largest = s->combiner_max_variance;
    float *T = b->root, *f = b->f, *v = b->v, variance = 0;
    for (int i = 0; i < m; i++) variance += T[(size_t)i * n + turn] * T[(size_t)i * n + turn];
    if (variance > SLACK * largest) {
        float a = (1 - sqrtf(largest / variance)) / variance;
        for (int i = 0; i < m; i++) f[i] = T[(size_t)i * n + turn];
        transposed(n, T, f, v);
        float step = a * (2 - a * variance) * (b->z[turn] - 1.0f / m);
        for (int j = 0; j < n; j++) b->z[j] -= step * v[j]; /* towards the mean, as it forgets */
        lower(n, T, f, v, a, 1);
        measure(b, n);
    }
    b->turn = turn + 1 == m ? 0 : turn + 1;

    transposed(n, T, f, v);
    float alpha = beta + dot(n, f, f), g = 1 / alpha;
    float step = g * (d - dot(n, b->z, b->y));
    for (int j = 0; j < n; j++) b->z[j] += step * v[j];
    lower(n, T, f, v, g / (1 + sqrtf(beta / alpha)), 1 / sqrtf(beta));
}

static inline void combine(const settings *s, booster *b, float d, float prediction) {
    int n = padded(s->m);
    if (s->combiner == COMBINE_NEWTON) {
        combine_newton(s, b, d);
    } else {
        float power = s->combiner_epsilon + dot(n, b->y, b->y);
        float step = s->combiner_step * (d - prediction) / power;
        for (int k = 0; k < n; k++) b->z[k] += step * b->y[k];
    }
}
