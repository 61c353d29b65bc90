/* The boosters as one plain loop over time: what a run of the library is timed against.
 *
 * One function per family of learners, for any m and r, single-threaded, float32. Newton learners
 * keep the full symmetric matrix P and update it as P <- (P - v v')/beta, the outer product formed
 * first so that P stays exactly symmetric; they have no cap on P unless one is asked for. The
 * Newton combiner keeps a square root of P, capped, as the library's: on m nearly equal predictions
 * the P form reaches NaN in float32 within 1e5 steps. Data reuse is in closed form, one update
 * whatever the number of repeats. Random updates skip the learners that are not drawn. The sums
 * behind delta are plain: -ffast-math would remove Kahan's compensation anyway. Samples are not
 * checked for NaN.
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

static float *zeros(size_t n) { return calloc(n, sizeof(float)); }

static void diagonal(float *P, int r, float value) {
    memset(P, 0, (size_t)r * r * sizeof(float));
    for (int i = 0; i < r; i++) P[(size_t)i * r + i] = value;
}

static booster booster_new(const settings *s) {
    int m = s->m;
    booster b = {zeros(m), zeros(m), zeros(m), zeros(m), zeros(m), zeros(m), zeros(m),
                 zeros((size_t)m * m), zeros(m), zeros(m), 0};
    float variance = fminf(1 / s->combiner_ridge, s->combiner_max_variance);
    for (int k = 0; k < m; k++) b.z[k] = 1.0f / m;
    diagonal(b.root, m, sqrtf(variance));
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

static inline uint32_t xorshift(uint32_t *state) {
    uint32_t h = *state;
    h ^= h << 13, h ^= h >> 17, h ^= h << 5;
    return *state = h;
}

/* Bring one diagonal entry of P, the next in turn, back to the cap by a measurement of its
 * coefficient that finds it as it is; v is scratch. */
static void hold(int r, float *restrict P, float *restrict v, float largest, int turn) {
    const float *c = P + (size_t)turn * r;
    float variance = c[turn];
    if (variance <= SLACK * largest) return;
    float root = sqrtf((1 - largest / variance) / variance);
    for (int i = 0; i < r; i++) v[i] = root * c[i];
    for (int i = 0; i < r; i++)
        for (int j = 0; j < r; j++) P[(size_t)i * r + j] -= v[i] * v[j];
}

/* One step of weighted recursive least squares; e is the error before it, v is scratch. */
static inline void least_squares(int r, float *restrict w, float *restrict P, float *restrict v,
                                 const float *restrict x, float e, float lam, float beta,
                                 float max_variance, int turn) {
    if (max_variance > 0) hold(r, P, v, max_variance, turn);
    for (int i = 0; i < r; i++) v[i] = dot(r, P + (size_t)i * r, x);
    float g = lam / (beta + lam * dot(r, x, v));
    float step = g * e, root = sqrtf(g), grow = 1 / beta;
    for (int i = 0; i < r; i++) w[i] += step * v[i], v[i] *= root;
    for (int i = 0; i < r; i++) {
        float *restrict row = P + (size_t)i * r;
        for (int j = 0; j < r; j++) row[j] = (row[j] - v[i] * v[j]) * grow;
    }
}

#ifdef __GNUC__
#define OWN_FUNCTION __attribute__((noinline))
#else
#define OWN_FUNCTION
#endif

/* lambda from l and delta, then delta and Lambda. Not inlined: inside its callers the compiler no
 * longer sees that the arrays are apart, and takes the logarithms and exponentials one by one. */
OWN_FUNCTION static float emphasis(int m, float dependence, const float *restrict total,
                      const float *restrict e, float *restrict lam, float *restrict Lam,
                      float *restrict loss) {
    float sum = 0;
    for (int k = 0; k < m; k++) {
        float delta = fmaxf(loss[k] / fmaxf(Lam[k], 1e-30f), SMALLEST_DELTA);
        float weight = expf(fminf(dependence * total[k] * logf(delta), 0));
        lam[k] = weight;
        Lam[k] += weight;
        loss[k] += weight * fminf(0.25f * e[k] * e[k], 1);
        sum += weight;
    }
    return sum;
}

/* Errors -> l -> lambda. Returns the sum of lambda. */
static float chain(const settings *s, booster *b, float d) {
    int m = s->m;
    float *restrict e = b->e, *restrict total = b->total, l = 0;
    for (int k = 0; k < m; k++) {
        e[k] = d - b->y[k];
        total[k] = l;
        l += s->target_mse - e[k] * e[k];
    }
    return emphasis(m, s->dependence, total, e, b->lam, b->Lam, b->loss);
}

/* v = T'f. */
static void transposed(int m, const float *restrict T, const float *restrict f, float *restrict v) {
    for (int j = 0; j < m; j++) v[j] = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < m; j++) v[j] += f[i] * T[(size_t)i * m + j];
}

/* T <- (T - a f v') grow. */
static void lower(int m, float *restrict T, const float *restrict f, const float *restrict v,
                  float a, float grow) {
    for (int i = 0; i < m; i++) {
        float *restrict row = T + (size_t)i * m;
        float step = a * f[i];
        for (int j = 0; j < m; j++) row[j] = (row[j] - step * v[j]) * grow;
    }
}

/* f = T y, for the estimate and, unless T is changed in between, for the update after it. */
static void measure(const booster *b, int m) {
    for (int i = 0; i < m; i++) b->f[i] = dot(m, b->root + (size_t)i * m, b->y);
}

/* The combined estimate z'y. Least squares holds back what it adds to the mean where predictions
 * are new to it (the forward form). */
static inline float estimate(const settings *s, const booster *b) {
    int m = s->m;
    float all = dot(m, b->z, b->y);
    if (s->combiner != COMBINE_NEWTON) return all;
    float mean = 0, beta = s->combiner_forgetting;
    for (int k = 0; k < m; k++) mean += b->y[k];
    mean /= m;
    measure(b, m);
    return mean + (all - mean) * (beta / (beta + dot(m, b->f, b->f)));
}

/* Least squares of weight 1 on the predictions y, on a square root T of P = T'T (Potter's form).
 * One diagonal entry of P a step, the next in turn, is brought back to the cap. */
static void combine_newton(const settings *s, booster *b, float d) {
    int m = s->m, turn = b->turn;
    float beta = s->combiner_forgetting, largest = s->combiner_max_variance;
    float *T = b->root, *f = b->f, *v = b->v, variance = 0;
    for (int i = 0; i < m; i++) variance += T[(size_t)i * m + turn] * T[(size_t)i * m + turn];
    if (variance > SLACK * largest) {
        float a = (1 - sqrtf(largest / variance)) / variance;
        for (int i = 0; i < m; i++) f[i] = T[(size_t)i * m + turn];
        transposed(m, T, f, v);
        float step = a * (2 - a * variance) * (b->z[turn] - 1.0f / m);
        for (int j = 0; j < m; j++) b->z[j] -= step * v[j]; /* towards the mean, as it forgets */
        lower(m, T, f, v, a, 1);
        measure(b, m);
    }
    b->turn = turn + 1 == m ? 0 : turn + 1;

    transposed(m, T, f, v);
    float alpha = beta + dot(m, f, f), g = 1 / alpha, step = g * (d - dot(m, b->z, b->y));
    for (int j = 0; j < m; j++) b->z[j] += step * v[j];
    lower(m, T, f, v, g / (1 + sqrtf(beta / alpha)), 1 / sqrtf(beta));
}

static inline void combine(const settings *s, booster *b, float d, float prediction) {
    int m = s->m;
    if (s->combiner == COMBINE_NEWTON) {
        combine_newton(s, b, d);
    } else {
        float power = s->combiner_epsilon + dot(m, b->y, b->y);
        float step = s->combiner_step * (d - prediction) / power;
        for (int k = 0; k < m; k++) b->z[k] += step * b->y[k];
    }
}

/* Boosted SGD. predictions is (T,); returns the mean of lambda. */
double bsgd(const settings *s, int64_t T, const float *xs, const float *ds, float *predictions) {
    int m = s->m, r = s->r;
    unsigned mode = flush_denormals();
    booster b = booster_new(s);
    float *W = zeros((size_t)m * r);
    uint32_t random = s->seed;
    double lam_sum = 0;
    for (int64_t t = 0; t < T; t++) {
        const float *x = xs + t * r;
        float d = ds[t], power = dot(r, x, x);
        for (int k = 0; k < m; k++) b.y[k] = dot(r, W + (size_t)k * r, x);
        predictions[t] = estimate(s, &b);
        lam_sum += chain(s, &b, d);
        for (int k = 0; k < m; k++) {
            float lam = b.lam[k], step = s->step_size, *restrict w = W + (size_t)k * r;
            if (s->mode == WEIGHTED) step *= lam;
            if (s->mode == RANDOM_UPDATE && (xorshift(&random) >> 8) * 0x1p-24f >= lam) continue;
            if (step * power > 2) step = 1 / power;
            if (s->mode == DATA_REUSE) {
                /* n repeats are one step, longer by 1 + q + ... + q^(n-1) */
                int n = (int)ceilf(s->max_reuse * lam);
                float q = 1 - step * power, sum = 0;
                for (int j = 0; j < n; j++) sum = 1 + q * sum;
                step *= sum;
            }
            step *= b.e[k];
            for (int i = 0; i < r; i++) w[i] += step * x[i];
        }
        combine(s, &b, d, predictions[t]);
    }
    free(W);
    booster_free(&b);
    restore_denormals(mode);
    return lam_sum / ((double)T * m);
}

/* Boosted Newton learners. */
double bnm(const settings *s, int64_t T, const float *xs, const float *ds, float *predictions) {
    int m = s->m, r = s->r;
    unsigned mode = flush_denormals();
    booster b = booster_new(s);
    size_t square = (size_t)r * r;
    float *W = zeros((size_t)m * r), *P = zeros(m * square), *v = zeros(r);
    for (int k = 0; k < m; k++) diagonal(P + k * square, r, 1 / s->ridge);
    /* n repeats are one update with forgetting beta^n and weight 1 + beta + ... + beta^(n-1) */
    float power[LARGEST_REUSE + 1] = {1}, sum[LARGEST_REUSE + 1] = {0};
    for (int n = 1; n <= s->max_reuse; n++) {
        power[n] = power[n - 1] * s->forgetting;
        sum[n] = sum[n - 1] + power[n - 1];
    }
    uint32_t random = s->seed;
    double lam_sum = 0;
    for (int64_t t = 0; t < T; t++) {
        const float *x = xs + t * r;
        float d = ds[t];
        for (int k = 0; k < m; k++) b.y[k] = dot(r, W + (size_t)k * r, x);
        predictions[t] = estimate(s, &b);
        lam_sum += chain(s, &b, d);
        for (int k = 0; k < m; k++) {
            float lam = b.lam[k], weight = 1, beta = s->forgetting;
            if (s->mode == WEIGHTED) weight = lam;
            if (s->mode == RANDOM_UPDATE && (xorshift(&random) >> 8) * 0x1p-24f >= lam) continue;
            if (s->mode == DATA_REUSE) {
                int n = (int)ceilf(s->max_reuse * lam);
                if (n == 0) continue;
                weight = sum[n], beta = power[n];
            }
            least_squares(r, W + (size_t)k * r, P + k * square, v, x, b.e[k], weight, beta,
                          s->max_variance, (int)(t % r));
        }
        combine(s, &b, d, predictions[t]);
    }
    free(W), free(P), free(v);
    booster_free(&b);
    restore_denormals(mode);
    return lam_sum / ((double)T * m);
}
