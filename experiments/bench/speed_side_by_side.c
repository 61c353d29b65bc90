/* The learners side by side: the first coefficients of a group of learners, then their second ones,
 * and so on, so that one vector instruction serves several learners.
 *
 * Newton learners keep the lower triangle of P, row by row. Nothing is skipped: a learner that is
 * not drawn is updated with weight 0 and without forgetting, which changes nothing. Random updates
 * that draw few learners are therefore faster together: at r = 90 with a mean lambda of 0.06, one
 * learner in 17 is updated there, and all of them here.
 */
#include "speed.h"

/* y = W'x for one group, in four sums that do not wait for each other. */
static inline void estimates(int r, const float *restrict W, const float *restrict x,
                             float *restrict y) {
    float a[LANES] = {0}, b[LANES] = {0}, c[LANES] = {0}, d[LANES] = {0};
    int i = 0;
    for (; i + 4 <= r; i += 4) {
        const float *restrict w = W + (size_t)i * LANES;
        for (int k = 0; k < LANES; k++) a[k] += x[i] * w[k];
        for (int k = 0; k < LANES; k++) b[k] += x[i + 1] * w[LANES + k];
        for (int k = 0; k < LANES; k++) c[k] += x[i + 2] * w[2 * LANES + k];
        for (int k = 0; k < LANES; k++) d[k] += x[i + 3] * w[3 * LANES + k];
    }
    for (; i < r; i++)
        for (int k = 0; k < LANES; k++) a[k] += x[i] * W[(size_t)i * LANES + k];
    for (int k = 0; k < LANES; k++) y[k] = (a[k] + b[k]) + (c[k] + d[k]);
}

/* 1 where a learner is drawn with probability lambda, else 0; every learner has its own state. */
static inline float drawn(uint32_t *state, float lam) {
    uint32_t h = *state;
    h ^= h << 13, h ^= h >> 17, h ^= h << 5;
    *state = h;
    return (int32_t)(h >> 8) * 0x1p-24f < lam;
}

static uint32_t *seeds(const settings *s) {
    int n = padded(s->m);
    uint32_t *random = (uint32_t *)zeros(n);
    for (int k = 0; k < n; k++) random[k] = s->seed + 2654435761u * k;
    return random;
}

/* How far each SGD learner goes along x. */
OWN_FUNCTION static void steps(const settings *s, int n, float power, const float *restrict lam,
                               const float *restrict e, uint32_t *restrict random,
                               float *restrict step) {
    float full = s->step_size, guarded = 1 / power;
    if (s->mode == WEIGHTED) {
        for (int k = 0; k < n; k++) {
            float mu = full * lam[k];
            step[k] = (mu * power > 2 ? guarded : mu) * e[k];
        }
        return;
    }
    float mu = full * power > 2 ? guarded : full, q = 1 - mu * power;
    if (s->mode == RANDOM_UPDATE) {
        for (int k = 0; k < n; k++) step[k] = drawn(random + k, lam[k]) * mu * e[k];
        return;
    }
    /* n repeats are one step, longer by 1 + q + ... + q^(n-1); n = ceil(K lambda) */
    for (int k = 0; k < n; k++) step[k] = 0;
    for (int j = 0; j < s->max_reuse; j++)
        for (int k = 0; k < n; k++)
            step[k] = j < s->max_reuse * lam[k] ? 1 + q * step[k] : step[k];
    for (int k = 0; k < n; k++) step[k] *= mu * e[k];
}

/* W <- W + x step' for one group. */
static inline void descend(int r, float *restrict W, const float *restrict x,
                           const float *restrict step) {
    for (int i = 0; i < r; i++)
        for (int k = 0; k < LANES; k++) W[(size_t)i * LANES + k] += x[i] * step[k];
}

/* Boosted SGD; predictions is (T,). */
void bsgd_side_by_side(const settings *s, int64_t T, const float *xs, const float *ds,
                       float *predictions) {
    int r = s->r, n = padded(s->m);
    unsigned mode = flush_denormals();
    booster b = booster_new(s);
    float *W = zeros((size_t)n * r), *step = zeros(n);
    uint32_t *random = seeds(s);
    for (int64_t t = 0; t < T; t++) {
        const float *x = xs + t * r;
        for (int k = 0; k < n; k += LANES) estimates(r, W + (size_t)k * r, x, b.y + k);
        predictions[t] = estimate(s, &b);
        chain(s, &b, ds[t]);
        steps(s, n, dot(r, x, x), b.lam, b.e, random, step);
        for (int k = 0; k < n; k += LANES) descend(r, W + (size_t)k * r, x, step + k);
        combine(s, &b, ds[t], predictions[t]);
    }
    free(W), free(step), free(random);
    booster_free(&b);
    restore_denormals(mode);
}

/* Where row i of a triangle begins. */
static inline size_t row_of(int i) { return (size_t)i * (i + 1) / 2 * LANES; }

/* v = P x for one group: two rows of the triangle at a time, used as columns too. */
static inline void product(int r, const float *restrict P, const float *restrict x,
                           float *restrict v) {
    int i = 0;
    for (; i + 2 <= r; i += 2) {
        const float *restrict p = P + row_of(i), *restrict q = P + row_of(i + 1);
        float a[LANES] = {0}, b[LANES] = {0};
        for (int j = 0; j < i; j++)
            for (int k = 0; k < LANES; k++) {
                float above = p[j * LANES + k], below = q[j * LANES + k];
                a[k] += x[j] * above, b[k] += x[j] * below;
                v[j * LANES + k] += x[i] * above + x[i + 1] * below;
            }
        for (int k = 0; k < LANES; k++) {
            float corner = q[i * LANES + k];
            v[i * LANES + k] = a[k] + x[i] * p[i * LANES + k] + x[i + 1] * corner;
            v[(i + 1) * LANES + k] = b[k] + x[i] * corner + x[i + 1] * q[(i + 1) * LANES + k];
        }
    }
    if (i < r) {
        const float *restrict p = P + row_of(i);
        float a[LANES] = {0};
        for (int j = 0; j < i; j++)
            for (int k = 0; k < LANES; k++) {
                a[k] += x[j] * p[j * LANES + k];
                v[j * LANES + k] += x[i] * p[j * LANES + k];
            }
        for (int k = 0; k < LANES; k++) v[i * LANES + k] = a[k] + x[i] * p[i * LANES + k];
    }
}

/* P <- (P - v v') grow for one group. */
static inline void subtract(int r, float *restrict P, const float *restrict v,
                            const float *restrict grow) {
    for (int i = 0; i < r; i++) {
        float *restrict p = P + row_of(i), scaled[LANES];
        for (int k = 0; k < LANES; k++) scaled[k] = v[i * LANES + k] * grow[k];
        for (int j = 0; j <= i; j++)
            for (int k = 0; k < LANES; k++)
                p[j * LANES + k] = p[j * LANES + k] * grow[k] - scaled[k] * v[j * LANES + k];
    }
}

/* Bring one diagonal entry of P, the next in turn, back to the cap in the learners that are
 * updated, by a measurement of its coefficient that finds it as it is; v is scratch. */
static void hold(int r, float *restrict P, float *restrict v, const float *restrict weight,
                 float largest, int turn) {
    float root[LANES], unchanged[LANES], most = 0;
    for (int k = 0; k < LANES; k++) {
        float variance = P[row_of(turn) + turn * LANES + k];
        int above = weight[k] > 0 && variance > SLACK * largest;
        root[k] = above ? sqrtf((1 - largest / variance) / variance) : 0;
        unchanged[k] = 1, most = fmaxf(most, root[k]);
    }
    if (most == 0) return;
    for (int i = 0; i < r; i++) {
        size_t entry = i < turn ? row_of(turn) + i * LANES : row_of(i) + turn * LANES;
        for (int k = 0; k < LANES; k++) v[i * LANES + k] = root[k] * P[entry + k];
    }
    subtract(r, P, v, unchanged);
}

/* One step of weighted recursive least squares for one group; e has the errors before it, v is
 * scratch. P is read twice. One pass, which changes P as the step before asks and multiplies it by
 * the new x, needs more registers than there are and takes a seventh longer at r = 21. */
OWN_FUNCTION static void least_squares(int r, float *restrict W, float *restrict P,
                                       float *restrict v, const float *restrict x,
                                       const float *restrict e, const float *restrict weight,
                                       const float *restrict beta) {
    float power[LANES] = {0}, step[LANES], root[LANES], grow[LANES];
    product(r, P, x, v);
    for (int i = 0; i < r; i++)
        for (int k = 0; k < LANES; k++) power[k] += x[i] * v[i * LANES + k];
    for (int k = 0; k < LANES; k++) {
        float g = weight[k] / (beta[k] + weight[k] * power[k]);
        step[k] = g * e[k], root[k] = sqrtf(g), grow[k] = 1 / beta[k];
    }
    for (int i = 0; i < r; i++)
        for (int k = 0; k < LANES; k++) {
            W[i * LANES + k] += step[k] * v[i * LANES + k];
            v[i * LANES + k] *= root[k];
        }
    subtract(r, P, v, grow);
}

/* The weight and the forgetting of each Newton learner. */
OWN_FUNCTION static void spend(const settings *s, int n, const float *restrict lam,
                               uint32_t *restrict random, float *restrict weight,
                               float *restrict beta) {
    float forgetting = s->forgetting;
    if (s->mode == WEIGHTED) {
        for (int k = 0; k < n; k++) weight[k] = lam[k], beta[k] = forgetting;
    } else if (s->mode == RANDOM_UPDATE) {
        for (int k = 0; k < n; k++) {
            weight[k] = drawn(random + k, lam[k]);
            beta[k] = weight[k] > 0 ? forgetting : 1;
        }
    } else {
        /* n repeats are one update with forgetting beta^n and weight 1 + beta + ... + beta^(n-1) */
        for (int k = 0; k < n; k++) weight[k] = 0, beta[k] = 1;
        for (int j = 0; j < s->max_reuse; j++)
            for (int k = 0; k < n; k++) {
                float again = j < s->max_reuse * lam[k];
                weight[k] += again * beta[k];
                beta[k] = again > 0 ? beta[k] * forgetting : beta[k];
            }
    }
}

/* Boosted Newton learners. */
void bnm_side_by_side(const settings *s, int64_t T, const float *xs, const float *ds,
                      float *predictions) {
    int r = s->r, n = padded(s->m);
    unsigned mode = flush_denormals();
    booster b = booster_new(s);
    size_t triangle = row_of(r) / LANES;
    float *W = zeros((size_t)n * r), *P = zeros(n * triangle), *v = zeros((size_t)r * LANES);
    float *weight = zeros(n), *beta = zeros(n);
    uint32_t *random = seeds(s);
    for (int g = 0; g < n; g += LANES)
        for (int i = 0; i < r; i++)
            for (int k = 0; k < LANES; k++)
                P[g * triangle + row_of(i) + i * LANES + k] = 1 / s->ridge;
    for (int64_t t = 0; t < T; t++) {
        const float *x = xs + t * r;
        for (int k = 0; k < n; k += LANES) estimates(r, W + (size_t)k * r, x, b.y + k);
        predictions[t] = estimate(s, &b);
        chain(s, &b, ds[t]);
        spend(s, n, b.lam, random, weight, beta);
        for (int k = 0; k < n; k += LANES) {
            float *p = P + k * triangle;
            if (s->max_variance > 0) hold(r, p, v, weight + k, s->max_variance, (int)(t % r));
            least_squares(r, W + (size_t)k * r, p, v, x, b.e + k, weight + k, beta + k);
        }
        combine(s, &b, ds[t], predictions[t]);
    }
    free(W), free(P), free(v), free(weight), free(beta), free(random);
    booster_free(&b);
    restore_denormals(mode);
}
