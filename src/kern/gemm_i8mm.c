/* Matrix products with FEAT_I8MM: an instruction multiplies 2 × 8 bytes with 8 × 2. Two rows of
 * activations meet eight pairs of lanes, whose bytes lie in runs of eight k:
 *
 *     panel   lane 0: k .. k+7 │ lane 1 │ ...   64 bytes, lanes 0 to 7; then lanes 8 to 15
 *     part    row 0 with lanes 2j, 2j+1 │ row 1 with lanes 2j, 2j+1
 *
 * The bodies are in gemm_lanes.h. */
#include "ints.h"

enum { MAX_ROWS = 4, ROWS_32 = 4, ROWS_PAIR = 0, MAX_FLOAT_ROWS = 6, BIAS = 0 };

enum { PAIRS = 0 };

static inline ints factor_of(ints sub) {
    return sub;
}

static inline void store_block(const ints w[8], uint8_t (*to)[64]) {
    KERN_UNROLL for (int v = 0; v < 8; v += 2) {
        LANES_EACH {
            int32x4x2_t runs = {{w[v].v[i], w[v + 1].v[i]}};
            vst2q_s32((int32_t *)(void *)to[v] + 8 * i, runs);
        }
    }
}

/* The sums of one row: halves of the parts of its pair. */
static inline ints row_of(const int32x4_t part[8], bool second) {
    ints row;
    LANES_EACH {
        int64x2_t a = vreinterpretq_s64_s32(part[2 * i]),
                  b = vreinterpretq_s64_s32(part[2 * i + 1]);
        row.v[i] = vreinterpretq_s32_s64(second ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
    }
    return row;
}

KERN_INLINE void dot_group(bool scaled, int rows, int n, const uint8_t (*w)[64],
                           const char *const *q, ints factor, ints *sum) {
    const int pairs = (rows + 1) / 2;
    int32x4_t part[MAX_ROWS / 2][8];
    KERN_UNROLL for (int i = 0; i < pairs; i++) {
        KERN_UNROLL for (int j = 0; j < 8; j++) part[i][j] = vdupq_n_s32(0);
    }
    KERN_UNROLL for (int v = 0; v < n; v += 2) {
        int8x16_t x[8];
        KERN_UNROLL for (int j = 0; j < 8; j++) x[j] = vld1q_s8((const int8_t *)w[v] + 16 * j);
        KERN_UNROLL for (int i = 0; i < pairs; i++) {
            const char *first = q[2 * i], *second = q[2 * i + 1 < rows ? 2 * i + 1 : 2 * i];
            int8x16_t two = vcombine_s8(vld1_s8((const int8_t *)first + 4 * v),
                                        vld1_s8((const int8_t *)second + 4 * v));
            KERN_UNROLL for (int j = 0; j < 8; j++) part[i][j] = vmmlaq_s32(part[i][j], two, x[j]);
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        ints row = row_of(part[i / 2], i % 2);
        sum[i] = ints_add(sum[i], scaled ? ints_mul(row, factor) : row);
    }
}

KERN_INLINE void dot(bool scaled, int depth, int groups, int rows, int n,
                     const uint8_t (*const *w)[64], const char *const *q, ints factor,
                     ints (*sum)[MAX_ROWS]) {
    KERN_UNROLL for (int g = 0; g < groups; g++)
        dot_group(scaled, rows, n, w[g], q, factor, sum[g]);
}

#include "gemm_lanes.h"

void kern_gemm_i8mm(KERN_GEMM_ARGS) {
    gemm(w, act, act_stride, m, out, out_stride, add, group0, group1);
}
