/* The learners one after the other: the coefficients of each lie together.
 *
 * Newton learners keep the full symmetric matrix P, the outer product formed first so that P stays
 * exactly symmetric. Random updates skip the learners that are not drawn.
 */
#include "speed.h"

static void diagonal(float *P, int r, float value) {
    memset(P, 0, (size_t)r * r * sizeof(float));
    for (int i = 0; i < r; i++) P[(size_t)i * r + i] = value;
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

/* Boosted SGD; predictions is (T,). */
void bsgd_together(const settings *s, int64_t T, const float *xs, const float *ds,
                   float *predictions) {
    int m = s->m, r = s->r;
    unsigned mode = flush_denormals();
    booster b = booster_new(s);
    float *W = zeros((size_t)m * r);
    uint32_t random = s->seed;
    for (int64_t t = 0; t < T; t++) {
        const float *x = xs + t * r;
        float d = ds[t], power = dot(r, x, x);
        for (int k = 0; k < m; k++) b.y[k] = dot(r, W + (size_t)k * r, x);
        predictions[t] = estimate(s, &b);
        chain(s, &b, d);
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
}

/* Boosted Newton learners. */
void bnm_together(const settings *s, int64_t T, const float *xs, const float *ds,
                  float *predictions) {
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
    for (int64_t t = 0; t < T; t++) {
        const float *x = xs + t * r;
        float d = ds[t];
        for (int k = 0; k < m; k++) b.y[k] = dot(r, W + (size_t)k * r, x);
        predictions[t] = estimate(s, &b);
        chain(s, &b, d);
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
}
