/* Matrix products of integer types with AMX: 16 activation rows × 16 weight rows × one block of 32
 * a tile product. The integer sums leave the tiles through memory, and the float chain runs in 16
 * accumulator registers, one an activation row; the sums of the next two blocks are computed while
 * the chain takes in the last two. */
#include "kern_internal.h"

#include <immintrin.h>

enum { ROWS = 16, CHUNK = 48, MAX_TILES = 8 };

/* Up to CHUNK blocks of one group as the tiles take them, in L1 while the activations pass. */
typedef struct panel {
    _Alignas(64) int8_t w[CHUNK][512];
    float d[CHUNK][KERN_GROUP], min[CHUNK][KERN_GROUP];
} panel;

typedef float accumulators[ROWS][KERN_GROUP];

KERN_INLINE __m512 load_halves(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_load_si256((const __m256i *)p));
}

KERN_INLINE void fill(enum kern_type type, panel *p, const kern_group *g, int b0, int n) {
    const size_t quant_size = type == KERN_Q8_0 ? 512 : 256;
    const size_t scale_size = type == KERN_Q4_1 ? 64 : 32;
    const __m512i low = _mm512_set1_epi8(15), eight = _mm512_set1_epi8(8);
    const __m512i sign = _mm512_set1_epi8(-128);
    for (int b = 0; b < n; b++) {
        const uint8_t *quants = g->quants + (size_t)(b0 + b) * quant_size;
        const uint8_t *scales = g->scales + (size_t)(b0 + b) * scale_size;
        for (int v = 0; v < (type == KERN_Q8_0 ? 8 : 4); v++) {
            __m512i x = _mm512_load_si512(quants + 64 * v);
            if (type == KERN_Q8_0) {
                _mm512_store_si512(p->w[b] + 64 * v, _mm512_xor_si512(x, sign));
                continue;
            }
            __m512i x0 = _mm512_and_si512(x, low);
            __m512i x1 = _mm512_and_si512(_mm512_srli_epi16(x, 4), low);
            if (type == KERN_Q4_0) {
                x0 = _mm512_sub_epi8(x0, eight);
                x1 = _mm512_sub_epi8(x1, eight);
            }
            _mm512_store_si512(p->w[b] + 64 * v, x0);
            _mm512_store_si512(p->w[b] + 64 * (v + 4), x1);
        }
        _mm512_store_ps(p->d[b], load_halves(scales));
        if (type == KERN_Q4_1) _mm512_store_ps(p->min[b], load_halves(scales + 32));
    }
}

/* GCC's _tile_loadd and _tile_loadconfig do not say which memory they read; what they are to find
 * there must be written before. */
static inline void finish_stores(void) {
    __asm__ volatile("" ::: "memory");
}

static void fill_panel(enum kern_type type, panel *p, const kern_group *g, int b0, int n) {
    switch (type) {
    case KERN_Q8_0:
        fill(KERN_Q8_0, p, g, b0, n);
        break;
    case KERN_Q4_0:
        fill(KERN_Q4_0, p, g, b0, n);
        break;
    default:
        fill(KERN_Q4_1, p, g, b0, n);
    }
    finish_stores();
}

/* Tiles 0, 1: sums; 4, 5: activations; 6, 7: weights. */
static void configure_tiles(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_size[16];
        uint8_t n_rows[16];
    } c = {.palette = 1};
    c.row_size[0] = c.row_size[1] = 64, c.n_rows[0] = c.n_rows[1] = ROWS;
    c.row_size[4] = c.row_size[5] = KERN_BLOCK, c.n_rows[4] = c.n_rows[5] = ROWS;
    c.row_size[6] = c.row_size[7] = 64, c.n_rows[6] = c.n_rows[7] = KERN_BLOCK / 4;
    finish_stores();
    _tile_loadconfig(&c);
}

typedef int32_t sums[ROWS][KERN_GROUP];

/* Integer sums of two blocks; q points at the first one's activations. */
KERN_INLINE void multiply_two(const panel *p, int b, const int8_t *q, size_t act_stride) {
    _tile_zero(0);
    _tile_loadd(4, q, act_stride);
    _tile_loadd(6, p->w[b], 64);
    _tile_dpbssd(0, 4, 6);
    _tile_zero(1);
    _tile_loadd(5, q + KERN_BLOCK, act_stride);
    _tile_loadd(7, p->w[b + 1], 64);
    _tile_dpbssd(1, 5, 7);
}

KERN_INLINE void chain_block(bool has_min, __m512 acc[ROWS], sums sum, const panel *p, int b,
                             const kern_act *a, size_t act_stride) {
    __m512 d = _mm512_load_ps(p->d[b]), min = has_min ? _mm512_load_ps(p->min[b]) : d;
    KERN_UNROLL for (int i = 0; i < ROWS; i++) {
        const kern_act *row = (const kern_act *)((const char *)a + (size_t)i * act_stride);
        acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(row->d)),
                                 _mm512_cvtepi32_ps(_mm512_load_si512(sum[i])), acc[i]);
        if (has_min) acc[i] = _mm512_fmadd_ps(min, _mm512_set1_ps(row->s), acc[i]);
    }
}

/* Continues the chains of 16 rows over n blocks of a panel; q and a point at the first block. */
KERN_INLINE void chain_panel(bool has_min, const panel *p, int n, const int8_t *q,
                             const kern_act *a, size_t act_stride, accumulators out) {
    _Alignas(64) sums sum[2][2];
    __m512 acc[ROWS];
    KERN_UNROLL for (int i = 0; i < ROWS; i++) acc[i] = _mm512_load_ps(out[i]);
    int even = n & ~1;
    for (int b = 0; b <= even; b += 2) {
        sums *now = sum[b / 2 % 2], *last = sum[1 - b / 2 % 2];
        if (b < even) multiply_two(p, b, q + b * KERN_BLOCK, act_stride);
        if (b > 0) {
            chain_block(has_min, acc, last[0], p, b - 2, a + b - 2, act_stride);
            chain_block(has_min, acc, last[1], p, b - 1, a + b - 1, act_stride);
        }
        if (b < even) {
            _tile_stored(0, now[0], 64);
            _tile_stored(1, now[1], 64);
        }
    }
    if (n % 2) {
        _tile_zero(0);
        _tile_loadd(4, q + even * KERN_BLOCK, act_stride);
        _tile_loadd(6, p->w[even], 64);
        _tile_dpbssd(0, 4, 6);
        _tile_stored(0, sum[0][0], 64);
        chain_block(has_min, acc, sum[0][0], p, even, a + even, act_stride);
    }
    KERN_UNROLL for (int i = 0; i < ROWS; i++) _mm512_store_ps(out[i], acc[i]);
}

static void chain_plain(const panel *p, int n, const int8_t *q, const kern_act *a,
                        size_t act_stride, accumulators out) {
    chain_panel(false, p, n, q, a, act_stride, out);
}

static void chain_min(const panel *p, int n, const int8_t *q, const kern_act *a, size_t act_stride,
                      accumulators out) {
    chain_panel(true, p, n, q, a, act_stride, out);
}

static void finish(accumulators acc, int n_lanes, float *out, size_t out_stride, bool add) {
    const __mmask16 lanes = (__mmask16)((1u << n_lanes) - 1);
    for (int i = 0; i < ROWS; i++) {
        float *to = out + (size_t)i * out_stride;
        __m512 x = _mm512_load_ps(acc[i]);
        if (add) x = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), x);
        _mm512_mask_storeu_ps(to, lanes, x);
    }
}

/* One group against up to MAX_TILES tiles of rows. */
static void multiply_group(const kern_mat *w, int group, const char *act, size_t act_stride,
                           int n_tiles, float *out, size_t out_stride, bool add) {
    panel p;
    _Alignas(64) accumulators acc[MAX_TILES];
    memset(acc, 0, (size_t)n_tiles * sizeof *acc);
    kern_group g = kern_group_of(w, group);
    for (int b = 0; b < g.n_blocks; b += CHUNK) {
        int n = g.n_blocks - b < CHUNK ? g.n_blocks - b : CHUNK;
        fill_panel(w->type, &p, &g, b, n);
        for (int t = 0; t < n_tiles; t++) {
            const char *rows = act + (size_t)(t * ROWS) * act_stride;
            (w->type == KERN_Q4_1 ? chain_min : chain_plain)(
                &p, n, (const int8_t *)rows + b * KERN_BLOCK, kern_act_blocks(rows, w->k) + b,
                act_stride, acc[t]);
        }
    }
    for (int t = 0; t < n_tiles; t++)
        finish(acc[t], g.n_lanes, out + (size_t)(t * ROWS) * out_stride + group * KERN_GROUP,
               out_stride, add);
}

void kern_gemm_amx(KERN_GEMM_ARGS) {
    int whole = kern_layout_of(w->type)->block == 1 ? 0 : m / ROWS * ROWS;
    if (whole) {
        finish_stores(); /* the caller's, of act */
        configure_tiles();
        for (int i = 0; i < whole; i += MAX_TILES * ROWS) {
            int n_tiles = (whole - i) / ROWS < MAX_TILES ? (whole - i) / ROWS : MAX_TILES;
            for (int group = group0; group < group1; group++)
                multiply_group(w, group, (const char *)act + (size_t)i * act_stride, act_stride,
                               n_tiles, out + (size_t)i * out_stride, out_stride, add);
        }
        _tile_release(); /* so that the kernel need not save the tiles any more */
    }
    if (whole < m)
        kern_gemm_vnni(w, (const char *)act + (size_t)whole * act_stride, act_stride, m - whole,
                       out + (size_t)whole * out_stride, out_stride, add, group0, group1);
}
