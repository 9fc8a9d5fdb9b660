/* Matrix products of integer types with AMX: 16 activation rows × 16 weight rows × one block a tile
 * product. The integer sums leave the tiles through memory, where the float chain picks them up.
 *
 * What limits: a tile store issues for about 13 cycles during which no other instruction does,
 * except tile products and loads. Hence two groups together (one load of activations serves both),
 * products and stores of a strip of blocks by themselves, two products ahead of the stores, and
 * then the chains of that strip, in 16 accumulator registers, one an activation row.
 *
 * Tiles take signed bytes. Blocks of 256 multiply their numbers by the sub-scales first; where the
 * products p exceed a byte they become two, p = 64·high + low, and two tile products. Types of up
 * to 3 bits have |p| <= 128: there -p fits, and d changes its sign, which changes no bit. */
#include "ints.h"

enum { ROWS = 16, PAIR = 2, STRIP = 8, MAX_TILES = 16, SPLIT = 6 };

/* A strip of one group as the tiles take it, in L1 while the activations pass: up to STRIP blocks
 * of 32, one of 256, two of narrow 256. Blocks of 256 are 4096 bytes of low parts, and 4096 of high
 * parts where there are any. */
typedef struct panel {
    _Alignas(64) int8_t w[8192];
    float d[STRIP][KERN_GROUP], min[STRIP][KERN_GROUP];
    __m512i minus[2][8]; /* minus the minimums, pairs of int16 */
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
        for (int j = 0; j < l->n_sub; j += 2)
            p->minus[b][j / 2] =
                _mm512_sub_epi16(_mm512_setzero_si512(), ints_pair(submin[j], submin[j + 1]));
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

/* A strip of one or two groups' panels and 16 activation rows. */
typedef struct strip {
    const kern_layout *l;
    const panel *p;
    int first, n; /* blocks */
    const int8_t *q;
    const char *a; /* the first row's kern_act or kern_act256 of the first block */
    size_t act_stride;
    const uint8_t *next[PAIR]; /* groups to come, to fetch; or NULL */
} strip;

static inline void fetch_next(const strip *s, int g, int b) {
    const int per_block = s->l->block / 32;
    if (s->next[g]) kern_fetch_shares(s->l, s->next[g], (s->first + b) * per_block, per_block);
}

/* ---- blocks of 32 ---- */

/* Sums of block b: of the first group in tile 0 or 2, of the second in the next. Before the second,
 * the tiles of the block before are stored. */
KERN_INLINE void multiply_32(bool both, bool even, const strip *s, int b, sums (*to)[STRIP]) {
    const int8_t *q = s->q + b * 32, *w0 = s->p[0].w + b * 512, *w1 = s->p[1].w + b * 512;
    if (even) {
        _tile_loadd(4, q, s->act_stride);
        _tile_loadd(6, w0, 64);
        _tile_zero(0);
        _tile_dpbssd(0, 4, 6);
        if (b > 0) _tile_stored(2, to[0][b - 1], 64);
        if (!both) return;
        _tile_loadd(7, w1, 64);
        _tile_zero(1);
        _tile_dpbssd(1, 4, 7);
        if (b > 0) _tile_stored(3, to[1][b - 1], 64);
    } else {
        _tile_loadd(5, q, s->act_stride);
        _tile_loadd(6, w0, 64);
        _tile_zero(2);
        _tile_dpbssd(2, 5, 6);
        _tile_stored(0, to[0][b - 1], 64);
        if (!both) return;
        _tile_loadd(7, w1, 64);
        _tile_zero(3);
        _tile_dpbssd(3, 5, 7);
        _tile_stored(1, to[1][b - 1], 64);
    }
}

KERN_INLINE void multiply_strip_32(bool both, const strip *s, sums (*to)[STRIP]) {
    for (int b = 0; b < s->n; b += 2) {
        multiply_32(both, true, s, b, to);
        if (b + 1 < s->n) multiply_32(both, false, s, b + 1, to);
    }
    if (s->n % 2) {
        _tile_stored(0, to[0][s->n - 1], 64);
        if (both) _tile_stored(1, to[1][s->n - 1], 64);
    } else {
        _tile_stored(2, to[0][s->n - 1], 64);
        if (both) _tile_stored(3, to[1][s->n - 1], 64);
    }
}

KERN_INLINE void chain_32(bool has_min, const strip *s, int g, sums *sum, accumulators out) {
    const panel *p = &s->p[g];
    __m512 acc[ROWS];
    KERN_UNROLL for (int i = 0; i < ROWS; i++) acc[i] = _mm512_load_ps(out[i]);
    for (int b = 0; b < s->n; b++) {
        __m512 d = _mm512_load_ps(p->d[b]), min = has_min ? _mm512_load_ps(p->min[b]) : d;
        fetch_next(s, g, b);
        KERN_UNROLL for (int i = 0; i < ROWS; i++) {
            const kern_act *a = (const kern_act *)(s->a + (size_t)i * s->act_stride) + b;
            acc[i] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(a->d)),
                                     _mm512_cvtepi32_ps(_mm512_load_si512(sum[b][i])), acc[i]);
            if (has_min) acc[i] = _mm512_fmadd_ps(min, _mm512_set1_ps(a->s), acc[i]);
        }
    }
    KERN_UNROLL for (int i = 0; i < ROWS; i++) _mm512_store_ps(out[i], acc[i]);
}

static void run_strip_32(const strip *s, int n_groups, accumulators *acc) {
    _Alignas(64) sums sum[PAIR][STRIP];
    if (n_groups == PAIR)
        multiply_strip_32(true, s, sum);
    else
        multiply_strip_32(false, s, sum);
    for (int g = 0; g < n_groups; g++)
        if (s->l->has_min)
            chain_32(true, s, g, sum[g], acc[g]);
        else
            chain_32(false, s, g, sum[g], acc[g]);
}

/* ---- blocks of 256 ---- */

/* Sums of a block: low parts in tile 0 or, for the second group, 2; high parts in the next. The
 * other two tiles, still under way, are stored in the middle. */
KERN_INLINE void multiply_256(bool narrow, bool first, const strip *s, int b, sums *pending) {
    const int8_t *q = s->q + b * 256, *w = s->p[!first].w + b * 4096;
    for (int i = 0; i < 4; i++, q += 64, w += 1024) {
        _tile_loadd(4, q, s->act_stride);
        _tile_loadd(6, w, 64);
        if (!narrow) _tile_loadd(7, w + 4096, 64);
        if (first) {
            if (i == 0) _tile_zero(0);
            _tile_dpbssd(0, 4, 6);
            if (i == 0 && !narrow) _tile_zero(1);
            if (!narrow) _tile_dpbssd(1, 4, 7);
            if (i == 1 && pending) _tile_stored(2, pending[0], 64);
            if (i == 1 && pending && !narrow) _tile_stored(3, pending[1], 64);
        } else {
            if (i == 0) _tile_zero(2);
            _tile_dpbssd(2, 4, 6);
            if (i == 0 && !narrow) _tile_zero(3);
            if (!narrow) _tile_dpbssd(3, 4, 7);
            if (i == 1 && pending) _tile_stored(0, pending[0], 64);
            if (i == 1 && pending && !narrow) _tile_stored(1, pending[1], 64);
        }
    }
}

/* sum[group][block][low, high] */
KERN_INLINE void multiply_strip_256(bool narrow, const strip *s, int n_groups, sums (*sum)[2][2]) {
    sums *pending = NULL;
    for (int b = 0; b < s->n; b++) {
        multiply_256(narrow, true, s, b, pending);
        pending = sum[0][b];
        if (n_groups == PAIR) {
            multiply_256(narrow, false, s, b, pending);
            pending = sum[1][b];
        } else {
            _tile_stored(0, pending[0], 64);
            if (!narrow) _tile_stored(1, pending[1], 64);
            pending = NULL;
        }
    }
    if (pending) {
        _tile_stored(2, pending[0], 64);
        if (!narrow) _tile_stored(3, pending[1], 64);
    }
}

/* What minimums take off: with one for every 16 or 32 numbers. */
KERN_INLINE __m512i sum_mins(int n_sub, const __m512i *minus, const kern_act256 *a) {
    const int16_t *sum = n_sub == 8 ? a->sum32 : a->sum16;
    __m512i all = _mm512_setzero_si512();
    KERN_UNROLL for (int j = 0; j < n_sub / 2; j++) {
        int32_t two;
        memcpy(&two, sum + 2 * j, sizeof two);
        all = _mm512_dpwssd_epi32(all, minus[j], _mm512_set1_epi32(two));
    }
    return all;
}

/* n_mins: 0, 8 or 16. */
KERN_INLINE void chain_256(bool narrow, int n_mins, const strip *s, int g, sums (*sum)[2],
                           accumulators out) {
    const panel *p = &s->p[g];
    for (int b = 0; b < s->n; b++) {
        __m512 d = _mm512_load_ps(p->d[b]), min = n_mins ? _mm512_load_ps(p->min[b]) : d;
        fetch_next(s, g, b);
        for (int i = 0; i < ROWS; i++) {
            const kern_act256 *a = (const kern_act256 *)(s->a + (size_t)i * s->act_stride) + b;
            __m512i x = _mm512_load_si512(sum[b][0][i]);
            if (!narrow)
                x = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(sum[b][1][i]), SPLIT), x);
            __m512 ad = _mm512_set1_ps(a->d), acc = _mm512_load_ps(out[i]);
            acc = _mm512_fmadd_ps(_mm512_mul_ps(d, ad), _mm512_cvtepi32_ps(x), acc);
            if (n_mins)
                acc = _mm512_fmadd_ps(_mm512_mul_ps(min, ad),
                                      _mm512_cvtepi32_ps(sum_mins(n_mins, p->minus[b], a)), acc);
            _mm512_store_ps(out[i], acc);
        }
    }
}

static void run_strip_256(const strip *s, int n_groups, accumulators *acc) {
    _Alignas(64) sums sum[PAIR][2][2];
    if (is_narrow(s->l))
        multiply_strip_256(true, s, n_groups, sum);
    else
        multiply_strip_256(false, s, n_groups, sum);
    for (int g = 0; g < n_groups; g++)
        if (is_narrow(s->l) && s->l->has_min)
            chain_256(true, 16, s, g, sum[g], acc[g]);
        else if (is_narrow(s->l))
            chain_256(true, 0, s, g, sum[g], acc[g]);
        else if (s->l->has_min)
            chain_256(false, 8, s, g, sum[g], acc[g]);
        else
            chain_256(false, 0, s, g, sum[g], acc[g]);
}

/* ---- products -------------------------------------------------------------------------------- */

static void finish(accumulators acc, int n_lanes, float *out, size_t out_stride, bool add) {
    const __mmask16 lanes = (__mmask16)((1u << n_lanes) - 1);
    for (int i = 0; i < ROWS; i++) {
        float *to = out + (size_t)i * out_stride;
        __m512 x = _mm512_load_ps(acc[i]);
        if (add) x = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, to), x);
        _mm512_mask_storeu_ps(to, lanes, x);
    }
}

/* Has the lines of a tile's outputs come, which are often far away. */
static inline void fetch_out(const float *out, size_t out_stride) {
    for (int i = 0; i < ROWS; i++, out += out_stride) {
        __builtin_prefetch(out, 1);
        __builtin_prefetch(out + KERN_GROUP, 1);
    }
}

/* One or two groups against up to MAX_TILES tiles of rows. */
static void multiply_groups(const kern_mat *w, int group, int n_groups, const char *act,
                            size_t act_stride, int n_tiles, float *out, size_t out_stride,
                            bool add) {
    const kern_layout *l = kern_layout_of(w->type);
    const bool large = l->block == 256;
    const int n_blocks = w->k / l->block, most = !large ? STRIP : is_narrow(l) ? 2 : 1;
    const int n_strips = (n_blocks + most - 1) / most;
    panel p[PAIR];
    _Alignas(64) accumulators acc[MAX_TILES][PAIR];
    memset(acc, 0, (size_t)n_tiles * sizeof *acc);
    kern_group groups[PAIR] = {kern_group_of(w, group), kern_group_of(w, group + n_groups - 1)};
    const size_t to_next = kern_mat_size(w->type, n_groups * KERN_GROUP, w->k);
    for (int i = 0; i < n_strips; i++) {
        int b = n_blocks * i / n_strips, n = n_blocks * (i + 1) / n_strips - b;
        for (int g = 0; g < n_groups; g++) (large ? fill_256 : fill_32)(l, &p[g], &groups[g], b, n);
        finish_stores();
        for (int t = 0; t < n_tiles; t++) {
            const char *row = act + (size_t)(t * ROWS) * act_stride;
            if (i == n_strips - 1)
                fetch_out(out + (size_t)(t * ROWS) * out_stride + group * KERN_GROUP, out_stride);
            const char *a = large ? (const char *)(kern_act_blocks256(row, w->k) + b)
                                  : (const char *)(kern_act_blocks(row, w->k) + b);
            strip s = {l, p, b, n, (const int8_t *)row + b * l->block, a, act_stride, {0}};
            for (int g = 0; t == 0 && g < n_groups; g++) s.next[g] = groups[g].quants + to_next;
            (large ? run_strip_256 : run_strip_32)(&s, n_groups, acc[t]);
        }
    }
    for (int t = 0; t < n_tiles; t++)
        for (int g = 0; g < n_groups; g++)
            finish(acc[t][g], groups[g].n_lanes,
                   out + (size_t)(t * ROWS) * out_stride + (group + g) * KERN_GROUP, out_stride,
                   add);
}

void kern_gemm_amx(KERN_GEMM_ARGS) {
    int block = kern_layout_of(w->type)->block, whole = block == 1 ? 0 : m / ROWS * ROWS;
    if (whole) {
        finish_stores(); /* the caller's, of act */
        configure_tiles(block == 32 ? 32 : 64);
        for (int i = 0; i < whole; i += MAX_TILES * ROWS) {
            int n_tiles = (whole - i) / ROWS < MAX_TILES ? (whole - i) / ROWS : MAX_TILES;
            for (int group = group0; group < group1; group += PAIR)
                multiply_groups(w, group, group1 - group < PAIR ? 1 : PAIR,
                                (const char *)act + (size_t)i * act_stride, act_stride, n_tiles,
                                out + (size_t)i * out_stride, out_stride, add);
        }
        _tile_release(); /* so that the kernel need not save the tiles any more */
    }
    if (whole < m)
        kern_gemm_vnni(w, (const char *)act + (size_t)whole * act_stride, act_stride, m - whole,
                       out + (size_t)whole * out_stride, out_stride, add, group0, group1);
}
