/* Matrix products of integer types with AMX: 16 activation rows × 16 weight rows × one block a tile
 * product. The integer sums leave the tiles through memory, and the float chain runs in 16
 * accumulator registers, one an activation row; the sums of the next blocks are computed while the
 * chain takes in the last ones.
 *
 * Tiles take signed bytes. Blocks of 256 multiply their numbers by the sub-scales first; where the
 * products p exceed a byte they become two, p = 64·high + low, and two tile products. Types of up
 * to 3 bits have |p| <= 128: there -p fits, and d changes its sign, which changes no bit. */
#include "ints.h"

enum { ROWS = 16, CHUNK = 48, MAX_TILES = 8, SPLIT = 6 };

/* Up to CHUNK blocks of 32 of one group as the tiles take them, in L1 while the activations pass.
 * Blocks of 256 are 4096 bytes of low parts, and 4096 of high parts where there are any. */
typedef struct panel {
    _Alignas(64) int8_t w[CHUNK * 512];
    float d[CHUNK][KERN_GROUP], min[CHUNK][KERN_GROUP];
    __m512i submin[CHUNK / 8 * 2][8]; /* pairs of int16, for a block's 16 sums */
} panel;

typedef float accumulators[ROWS][KERN_GROUP];
typedef int32_t sums[ROWS][KERN_GROUP];

/* GCC's _tile_loadd and _tile_loadconfig do not say which memory they read; what they are to find
 * there must be written before. */
static inline void finish_stores(void) {
    __asm__ volatile("" ::: "memory");
}

/* ---- panels ---------------------------------------------------------------------------------- */

/* 32 k of a type with blocks of 32 as signed bytes. */
KERN_INLINE void fill_numbers(int bits, const uint8_t *table, int offset, const uint8_t *quants,
                              int n, int8_t *to) {
    const __m512i minus = _mm512_set1_epi8((char)offset);
    for (int b = 0; b < n; b++, quants += 64 * bits) {
        __m512i w[8];
        ints_unpack(bits, quants, w);
        KERN_UNROLL for (int v = 0; v < 8; v++, to += 64) _mm512_store_si512(
            to, _mm512_sub_epi8(table ? ints_look_up(table, w[v]) : w[v], minus));
    }
}

static void fill_32(const kern_layout *l, panel *p, const kern_group *g, int b0, int n) {
    const uint8_t *quants = g->quants + (size_t)b0 * l->quant_size;
    const uint8_t *scales = g->scales + (size_t)b0 * l->scale_size;
    uint8_t table[16];
    if (l->codebook) {
        ints_codebook(l, table);
        fill_numbers(4, table, 128, quants, n, p->w);
    } else if (l->bits == 4) {
        fill_numbers(4, NULL, l->offset, quants, n, p->w);
    } else if (l->bits == 5) {
        fill_numbers(5, NULL, l->offset, quants, n, p->w);
    } else {
        fill_numbers(8, NULL, l->offset, quants, n, p->w);
    }
    for (int b = 0; b < n; b++, scales += l->scale_size) {
        _mm512_store_ps(p->d[b], l->wide_exponent ? lanes_load_bf16(scales)
                                                  : lanes_load_f16((const uint16_t *)scales));
        if (l->has_min) _mm512_store_ps(p->min[b], lanes_load_f16((const uint16_t *)(scales + 32)));
    }
}

static bool is_narrow(const kern_layout *l) {
    return l->bits <= 3;
}

/* Quants of four vectors or eight times the sub-scales of their lanes. */
KERN_INLINE void put_products(bool narrow, int offset, int n, const __m512i *w, __m512i sub,
                              int8_t *low, int8_t *high) {
    const __mmask64 odd = 0xaaaaaaaaaaaaaaaa;
    __m512i byte = _mm512_and_si512(sub, _mm512_set1_epi32(255));
    __m512i even = _mm512_or_si512(byte, _mm512_slli_epi32(byte, 16));
    __m512i minus = _mm512_mullo_epi32(sub, _mm512_set1_epi32(offset));
    minus = ints_pair(minus, minus);
    KERN_UNROLL for (int v = 0; v < n; v++) {
        __m512i p0 = _mm512_maddubs_epi16(w[v], even);
        __m512i p1 = _mm512_maddubs_epi16(w[v], _mm512_slli_epi32(even, 8));
        if (narrow) {
            p0 = _mm512_sub_epi16(minus, p0);
            p1 = _mm512_slli_epi16(_mm512_sub_epi16(minus, p1), 8);
            _mm512_store_si512(low + 64 * v, _mm512_mask_blend_epi8(odd, p0, p1));
            continue;
        }
        p0 = _mm512_sub_epi16(p0, minus);
        p1 = _mm512_sub_epi16(p1, minus);
        __m512i x = _mm512_mask_blend_epi8(odd, p0, _mm512_slli_epi16(p1, 8));
        _mm512_store_si512(low + 64 * v, _mm512_and_si512(x, _mm512_set1_epi8((1 << SPLIT) - 1)));
        x = _mm512_mask_blend_epi8(odd, _mm512_srai_epi16(p0, SPLIT),
                                   _mm512_slli_epi16(p1, 8 - SPLIT));
        _mm512_store_si512(high + 64 * v, x);
    }
}

/* One block of 256. */
KERN_INLINE void fill_products(int bits, const uint8_t *table, int n_sub, int offset,
                               const uint8_t *quants, const __m512i *sub, int8_t *to) {
    for (int b = 0; b < 8; b++, quants += 64 * bits, to += 512) {
        __m512i w[8];
        ints_unpack(bits, quants, w);
        if (table) {
            KERN_UNROLL for (int v = 0; v < 8; v++) w[v] = ints_look_up(table, w[v]);
        }
        if (n_sub == 8) {
            put_products(bits <= 3, offset, 8, w, sub[b], to, to + 4096);
        } else {
            put_products(bits <= 3, offset, 4, w, sub[2 * b], to, to + 4096);
            put_products(bits <= 3, offset, 4, w + 4, sub[2 * b + 1], to + 256, to + 4096 + 256);
        }
    }
}

static void fill_products_of(const kern_layout *l, const uint8_t *quants, const __m512i *sub,
                             int8_t *to) {
    uint8_t table[16];
    switch (l->codebook ? 0 : l->bits) {
    case 0:
        ints_codebook(l, table);
        fill_products(4, table, l->n_sub, 128, quants, sub, to);
        break;
    case 2:
        fill_products(2, NULL, l->n_sub, l->offset, quants, sub, to);
        break;
    case 3:
        fill_products(3, NULL, l->n_sub, l->offset, quants, sub, to);
        break;
    case 4:
        fill_products(4, NULL, l->n_sub, l->offset, quants, sub, to);
        break;
    case 5:
        fill_products(5, NULL, l->n_sub, l->offset, quants, sub, to);
        break;
    case 6:
        fill_products(6, NULL, l->n_sub, l->offset, quants, sub, to);
        break;
    }
}

static void fill_256(const kern_layout *l, panel *p, const kern_group *g, int b0, int n) {
    const size_t size = is_narrow(l) ? 4096 : 8192;
    const __m512 factor = _mm512_set1_ps(is_narrow(l) ? -l->factor : l->factor);
    for (int b = 0; b < n; b++) {
        const uint8_t *scales = g->scales + (size_t)(b0 + b) * l->scale_size;
        _mm512_store_ps(p->d[b], _mm512_mul_ps(lanes_load_f16((const uint16_t *)scales), factor));
        if (l->has_min) _mm512_store_ps(p->min[b], lanes_load_f16((const uint16_t *)(scales + 32)));
        __m512i sub[16], submin[16];
        ints_read_subs(l, scales, sub, submin);
        for (int j = 0; j < 8; j++)
            p->submin[b][j] = l->n_sub == 8 ? ints_pair(submin[j], submin[j])
                                            : ints_pair(submin[2 * j], submin[2 * j + 1]);
        fill_products_of(l, g->quants + (size_t)(b0 + b) * l->quant_size, sub, p->w + b * size);
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* Tiles 0..3: sums; 4, 5: activations; 6, 7: weights; of 32 or 64 k. */
static void configure_tiles(int k) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_size[16];
        uint8_t n_rows[16];
    } c = {.palette = 1};
    for (int i = 0; i < 4; i++) c.row_size[i] = 64, c.n_rows[i] = ROWS;
    for (int i = 4; i < 6; i++) c.row_size[i] = (uint16_t)k, c.n_rows[i] = ROWS;
    for (int i = 6; i < 8; i++) c.row_size[i] = 64, c.n_rows[i] = (uint8_t)(k / 4);
    finish_stores();
    _tile_loadconfig(&c);
}

/* A strip of a group's panel and 16 activation rows. */
typedef struct strip {
    const panel *p;
    int n; /* blocks */
    const int8_t *q;
    const char *a; /* the first row's kern_act or kern_act256 of the first block */
    size_t act_stride;
} strip;

/* Integer sums of two blocks of 32. */
KERN_INLINE void multiply_two(const strip *s, int b) {
    const int8_t *q = s->q + b * 32, *w = s->p->w + b * 512;
    _tile_zero(0);
    _tile_loadd(4, q, s->act_stride);
    _tile_loadd(6, w, 64);
    _tile_dpbssd(0, 4, 6);
    _tile_zero(1);
    _tile_loadd(5, q + 32, s->act_stride);
    _tile_loadd(7, w + 512, 64);
    _tile_dpbssd(1, 5, 7);
}

KERN_INLINE void chain_block(bool has_min, __m512 acc[ROWS], sums sum, const strip *s, int b) {
    __m512 d = _mm512_load_ps(s->p->d[b]), min = has_min ? _mm512_load_ps(s->p->min[b]) : d;
    KERN_UNROLL for (int i = 0; i < ROWS; i++) {
        const kern_act *a = (const kern_act *)(s->a + (size_t)i * s->act_stride) + b;
        acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(a->d)),
                                 _mm512_cvtepi32_ps(_mm512_load_si512(sum[i])), acc[i]);
        if (has_min) acc[i] = _mm512_fmadd_ps(min, _mm512_set1_ps(a->s), acc[i]);
    }
}

/* Continues the chains of 16 rows over blocks of 32. */
KERN_INLINE void chain_32(bool has_min, const strip *s, accumulators out) {
    _Alignas(64) sums sum[2][2];
    __m512 acc[ROWS];
    KERN_UNROLL for (int i = 0; i < ROWS; i++) acc[i] = _mm512_load_ps(out[i]);
    int even = s->n & ~1;
    for (int b = 0; b <= even; b += 2) {
        sums *now = sum[b / 2 % 2], *last = sum[1 - b / 2 % 2];
        if (b < even) multiply_two(s, b);
        if (b > 0) {
            chain_block(has_min, acc, last[0], s, b - 2);
            chain_block(has_min, acc, last[1], s, b - 1);
        }
        if (b < even) {
            _tile_stored(0, now[0], 64);
            _tile_stored(1, now[1], 64);
        }
    }
    if (s->n % 2) {
        _tile_zero(0);
        _tile_loadd(4, s->q + even * 32, s->act_stride);
        _tile_loadd(6, s->p->w + even * 512, 64);
        _tile_dpbssd(0, 4, 6);
        _tile_stored(0, sum[0][0], 64);
        chain_block(has_min, acc, sum[0][0], s, even);
    }
    KERN_UNROLL for (int i = 0; i < ROWS; i++) _mm512_store_ps(out[i], acc[i]);
}

/* Integer sums of a block of 256: tile 0 or 2 those of low parts, the next those of high parts. */
KERN_INLINE void multiply_256(bool narrow, int tile, const strip *s, int b) {
    const int8_t *q = s->q + b * 256, *w = s->p->w + b * (narrow ? 4096 : 8192);
    if (tile == 0) {
        _tile_zero(0);
        _tile_zero(1);
    } else {
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int i = 0; i < 4; i++, q += 64, w += 1024) {
        _tile_loadd(4, q, s->act_stride);
        _tile_loadd(6, w, 64);
        if (!narrow) _tile_loadd(7, w + 4096, 64);
        if (tile == 0) {
            _tile_dpbssd(0, 4, 6);
            if (!narrow) _tile_dpbssd(1, 4, 7);
        } else {
            _tile_dpbssd(2, 4, 6);
            if (!narrow) _tile_dpbssd(3, 4, 7);
        }
    }
}

KERN_INLINE __m512i add_mins(const __m512i *submin, const int16_t *sum) {
    __m512i all = _mm512_setzero_si512();
    KERN_UNROLL for (int j = 0; j < 8; j++) {
        int32_t two;
        memcpy(&two, sum + 2 * j, sizeof two);
        all = _mm512_dpwssd_epi32(all, submin[j], _mm512_set1_epi32(two));
    }
    return _mm512_sub_epi32(_mm512_setzero_si512(), all);
}

KERN_INLINE void chain_block_256(bool narrow, bool has_min, __m512 acc[ROWS], sums *sum,
                                 const strip *s, int b) {
    __m512 d = _mm512_load_ps(s->p->d[b]), min = has_min ? _mm512_load_ps(s->p->min[b]) : d;
    KERN_UNROLL for (int i = 0; i < ROWS; i++) {
        const kern_act256 *a = (const kern_act256 *)(s->a + (size_t)i * s->act_stride) + b;
        __m512i x = _mm512_load_si512(sum[0][i]);
        if (!narrow)
            x = _mm512_add_epi32(x, _mm512_slli_epi32(_mm512_load_si512(sum[1][i]), SPLIT));
        __m512 ad = _mm512_set1_ps(a->d);
        acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(d, ad), _mm512_cvtepi32_ps(x), acc[i]);
        if (has_min)
            acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(min, ad),
                                     _mm512_cvtepi32_ps(add_mins(s->p->submin[b], a->sum)), acc[i]);
    }
}

/* Continues the chains of 16 rows over blocks of 256. */
KERN_INLINE void chain_256(bool narrow, bool has_min, const strip *s, accumulators out) {
    _Alignas(64) sums sum[2];
    __m512 acc[ROWS];
    KERN_UNROLL for (int i = 0; i < ROWS; i++) acc[i] = _mm512_load_ps(out[i]);
    for (int b = 0; b < s->n; b++) {
        multiply_256(narrow, 0, s, b);
        _tile_stored(0, sum[0], 64);
        if (!narrow) _tile_stored(1, sum[1], 64);
        chain_block_256(narrow, has_min, acc, sum, s, b);
    }
    KERN_UNROLL for (int i = 0; i < ROWS; i++) _mm512_store_ps(out[i], acc[i]);
}

static void chain_strip(const kern_layout *l, const strip *s, accumulators out) {
    switch ((l->block == 256) << 2 | (l->block == 256 && is_narrow(l)) << 1 | l->has_min) {
    case 0:
        chain_32(false, s, out);
        break;
    case 1:
        chain_32(true, s, out);
        break;
    case 4:
        chain_256(false, false, s, out);
        break;
    case 5:
        chain_256(false, true, s, out);
        break;
    case 6:
        chain_256(true, false, s, out);
        break;
    case 7:
        chain_256(true, true, s, out);
        break;
    }
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
    const kern_layout *l = kern_layout_of(w->type);
    const bool large = l->block == 256;
    const int chunk = !large ? CHUNK : is_narrow(l) ? CHUNK / 8 : CHUNK / 16;
    panel p;
    _Alignas(64) accumulators acc[MAX_TILES];
    memset(acc, 0, (size_t)n_tiles * sizeof *acc);
    kern_group g = kern_group_of(w, group);
    for (int b = 0; b < g.n_blocks; b += chunk) {
        int n = g.n_blocks - b < chunk ? g.n_blocks - b : chunk;
        (large ? fill_256 : fill_32)(l, &p, &g, b, n);
        finish_stores();
        for (int t = 0; t < n_tiles; t++) {
            const char *row = act + (size_t)(t * ROWS) * act_stride;
            const char *a = large ? (const char *)(kern_act_blocks256(row, w->k) + b)
                                  : (const char *)(kern_act_blocks(row, w->k) + b);
            strip s = {&p, n, (const int8_t *)row + b * l->block, a, act_stride};
            chain_strip(l, &s, acc[t]);
        }
    }
    for (int t = 0; t < n_tiles; t++)
        finish(acc[t], g.n_lanes, out + (size_t)(t * ROWS) * out_stride + group * KERN_GROUP,
               out_stride, add);
}

void kern_gemm_amx(KERN_GEMM_ARGS) {
    int block = kern_layout_of(w->type)->block, whole = block == 1 ? 0 : m / ROWS * ROWS;
    if (whole) {
        finish_stores(); /* the caller's, of act */
        configure_tiles(block == 32 ? 32 : 64);
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
