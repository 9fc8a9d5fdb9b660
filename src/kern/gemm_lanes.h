/* The bodies of gemm_*.c but for AMX: float and integer products, in terms of lanes and ints. The
 * including file supplies
 *
 *   MAX_ROWS                             activation rows of a tile, 4 or more: what registers hold
 *   ROWS_32                              of blocks of 32, whose chains need more registers
 *   ROWS_PAIR                            of blocks of 32 where two groups share what is loaded of a
 *                                        row; 0 if none do
 *   dot(scaled, depth, groups, rows, n, w, q, factor, sum)
 *       adds to sum[g][i], for each of a tile's groups and rows, the products of n of the vectors
 *       w[g] with q[i], scaled: times the lanes' sub-scales
 *   factor_of(sub)                       sub-scales, int32, in the form that dot takes
 *   store_block(w, to)                   eight vectors of 32 k, in the order that dot takes them
 *   PAIRS                                1 if dot sums pairs and must be told a depth; else 0
 *   BIAS                                 128 if dot takes quants of 8 bits, which are number + 128,
 *                                        as they are; 0 if it takes them as signed numbers
 *
 * A group passes in strips of up to STRIP blocks of 32, two in half as long ones: its quants become
 * bytes in a panel, which stays in L1 while the tiles of rows pass, and so do their partial sums;
 * meanwhile the next group is fetched. Of FEW_ROWS rows memory is the limit, which must not rest
 * even while a panel is filled: their blocks of 32 pass through registers.
 *
 * Without VNNI a product of bytes saturates beyond int16; depth says how many vectors may be summed
 * before they must widen: 8·2·15·127 = 30,480 for quants of four bits, 4·2·31·127 = 31,496 for
 * five, 2·2·63·127 = 32,004 for six; KERN_NIBBLES: bytes must be split into two of these. From
 * WORD_ROWS rows on they become int16 instead, words, in the panel, and so do the numbers of the
 * rows, once for WORD_GROUPS groups: as many operations, but half of them additions, and none to
 * split bytes. Depths are constants of the code, so that sums are written out and stay in
 * registers. */
#include "ints.h"

enum {
    STRIP = 24,
    WORD_STRIP = 16,
    WORD_ROWS = 5,
    WORD_GROUPS = KERN_TILE_GROUPS, /* or fewer, of WORD_AHEAD bytes */
    WORD_AHEAD = 256 << 10,         /* what is fetched ahead must still be there */
    PANEL_ROWS = 128,
    FEW_ROWS = 2,
    GROUPS = ROWS_PAIR ? 2 : 1
};
enum { FEW_AHEAD = 16384 }; /* bytes, to fetch weights */

typedef struct panel {
    _Alignas(64) uint8_t w[PAIRS ? 16 * WORD_STRIP : 8 * STRIP][64];
    float d[STRIP][LANES], min[STRIP][LANES]; /* by block */
    ints factor[STRIP * 2];                   /* by sub-scale */
    ints correction[STRIP];                   /* pairs of int16, up to 8 a block */
} panel;

/* A strip of a product: rows against n vectors-of-32 of one panel or two. act points at row 0. */
typedef struct strip {
    const panel *p;
    const kern_layout *l;
    int n_groups, n;
    const char (*words)[64 * WORD_STRIP]; /* the numbers of the rows, if the panel has words */
    const char *act;
    size_t act_stride, at, scales_at; /* within a row: the strip's first number, first scales */
    size_t excess;                    /* within a kern_act: -offset · Σq */
    const uint8_t *next[GROUPS];      /* groups to come, to fetch; or NULL */
    float (*acc)[GROUPS][LANES];
} strip;

/* Vector v of a panel, which is two of words. */
static inline const uint8_t (*vector_of(bool words, const panel *p, int v))[64] {
    return p->w + (words ? 2 * v : v);
}

/* Number k, a multiple of 16, of row i. Words follow as widen() stores them. */
static inline const char *number_of(bool words, const strip *s, int i, int k) {
    if (!words) return s->act + (size_t)i * s->act_stride + s->at + k;
    return s->words[i] + k + k / 64 * 64;
}

/* 64 bytes as words: the even ones, then the odd ones. */
KERN_INLINE void widen(bool is_signed, ints x, void *to) {
    ints_store(to, ints_even_bytes(is_signed, x));
    ints_store((char *)to + 64, ints_odd_bytes(is_signed, x));
}

static inline void fetch_next(const strip *s, int b) {
    for (int g = 0; s->next[0] && g < s->n_groups; g++)
        kern_fetch_shares(s->l, s->next[g], (int)(s->at / 32) + b, 1);
}

/* ---- float types ----------------------------------------------------------------------------- */

/* The outputs of row i that are group g's. */
KERN_INLINE void store_sums(const kern_tile *t, int i, int g, lanes sum) {
    float *out = t->out + (size_t)i * t->out_stride + g * LANES;
    if (t->add) sum = lanes_add(lanes_load_n(out, t->g[g].n_lanes), sum);
    lanes_store_n(out, sum, t->g[g].n_lanes);
}

KERN_INLINE lanes load_numbers(enum kern_type type, const uint8_t *quants) {
    return type == KERN_F32   ? lanes_load((const float *)quants)
           : type == KERN_F16 ? lanes_load_f16((const uint16_t *)quants)
                              : lanes_load_bf16(quants);
}

KERN_INLINE void sum_numbers(enum kern_type type, int rows, const kern_tile *t) {
    const size_t size = type == KERN_F32 ? 64 : 32;
    lanes acc[MAX_FLOAT_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) acc[i] = lanes_zero();
    for (int k = 0; k < t->k; k++) {
        lanes w = load_numbers(type, t->g[0].quants + (size_t)k * size);
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            const float *x = (const float *)(t->act + (size_t)i * t->act_stride);
            acc[i] = lanes_fma(w, lanes_all(x[k]), acc[i]);
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) store_sums(t, i, 0, acc[i]);
}

/* One tile of a constant number of rows, so that the sums are registers. */
KERN_INLINE void run_floats(enum kern_type type, const kern_tile *t) {
    switch (t->rows) {
    case 1:
        sum_numbers(type, 1, t);
        break;
    case 2:
        sum_numbers(type, 2, t);
        break;
    case 3:
        sum_numbers(type, 3, t);
        break;
    case 4:
        sum_numbers(type, 4, t);
        break;
    case 5:
        sum_numbers(type, 5, t);
        break;
    case 6:
        sum_numbers(type, 6, t);
        break;
    }
}

static void run_float_tile(const kern_tile *t) {
    switch (t->type) {
    case KERN_F32:
        run_floats(KERN_F32, t);
        break;
    case KERN_F16:
        run_floats(KERN_F16, t);
        break;
    default:
        run_floats(KERN_BF16, t);
    }
}

/* ---- panels ---------------------------------------------------------------------------------- */

KERN_INLINE void unpack_block(int bits, const uint8_t *table, bool words, const uint8_t *quants,
                              uint8_t (*to)[64]) {
    ints w[8];
    ints_unpack(bits, quants, w);
    KERN_UNROLL for (int v = 0; v < 8; v++) {
        if (table) w[v] = ints_look_up(table, w[v]);
        if (BIAS == 0 && (table || bits == 8)) w[v] = ints_xor(w[v], ints_all_bytes(128));
    }
    if (words) {
        KERN_UNROLL for (int v = 0; v < 8; v++) widen(BIAS == 0, w[v], to[2 * v]);
    } else {
        store_block(w, to);
    }
}

KERN_INLINE void fill_bytes(int bits, const uint8_t *table, const uint8_t *quants, int n,
                            panel *p) {
    for (int b = 0; b < n; b++, quants += 64 * bits) {
        unpack_block(bits, table, false, quants, p->w + 8 * b);
    }
}

static void fill_words(const kern_layout *l, const uint8_t *quants, int n, panel *p) {
    uint8_t table[16];
    if (l->codebook) ints_codebook(l, table);
    for (int b = 0; b < n; b++, quants += 64 * l->bits) {
        if (l->codebook)
            unpack_block(4, table, true, quants, p->w + 16 * b);
        else
            unpack_block(8, NULL, true, quants, p->w + 16 * b);
    }
}

static void fill_quants(const kern_layout *l, const uint8_t *quants, int n, panel *p) {
    uint8_t table[16];
    switch (l->codebook ? 0 : l->bits) {
    case 0:
        ints_codebook(l, table);
        fill_bytes(4, table, quants, n, p);
        break;
    case 2:
        fill_bytes(2, NULL, quants, n, p);
        break;
    case 3:
        fill_bytes(3, NULL, quants, n, p);
        break;
    case 4:
        fill_bytes(4, NULL, quants, n, p);
        break;
    case 5:
        fill_bytes(5, NULL, quants, n, p);
        break;
    case 6:
        fill_bytes(6, NULL, quants, n, p);
        break;
    case 8:
        fill_bytes(8, NULL, quants, n, p);
        break;
    }
}

/* What the bytes of a panel are above the numbers. */
static inline int excess_of(const kern_layout *l) {
    return l->offset == 128 ? BIAS : l->offset;
}

static inline lanes load_d(const kern_layout *l, const uint8_t *scales) {
    return l->wide_exponent ? lanes_load_bf16(scales) : lanes_load_f16((const uint16_t *)scales);
}

static inline lanes load_min(const uint8_t *scales) {
    return lanes_load_f16((const uint16_t *)(scales + 32));
}

static void fill_scales_32(const kern_layout *l, const uint8_t *scales, int n, panel *p) {
    for (int b = 0; b < n; b++, scales += l->scale_size) {
        lanes_store(p->d[b], load_d(l, scales));
        if (l->has_min) lanes_store(p->min[b], load_min(scales));
    }
}

/* The sub-scales of a block of 256 as factors, and what its sums of activations are multiplied
 * with: minus the minimums, or minus the offset times the sub-scale. */
static void fill_subs(const kern_layout *l, bool words, const uint8_t *scales, ints *factor,
                      ints *correction) {
    ints sub[16], min[16];
    ints_read_subs(l, scales, sub, min);
    for (int j = 0; j < l->n_sub; j++) {
        factor[j] = words ? sub[j] : factor_of(sub[j]);
        min[j] =
            l->has_min ? ints_mul(min[j], ints_all(-1)) : ints_mul(sub[j], ints_all(-excess_of(l)));
    }
    for (int j = 0; j < l->n_sub; j += 2) correction[j / 2] = ints_pair(min[j], min[j + 1]);
}

static void fill_scales_256(const kern_layout *l, bool words, const uint8_t *scales, int n,
                            panel *p) {
    for (int b = 0; b < n; b++, scales += l->scale_size) {
        lanes d = lanes_load_f16((const uint16_t *)scales);
        lanes_store(p->d[b], lanes_mul(d, lanes_all(l->factor)));
        if (l->has_min) lanes_store(p->min[b], lanes_load_f16((const uint16_t *)(scales + 32)));
        fill_subs(l, words, scales, p->factor + b * l->n_sub, p->correction + 8 * b);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* Adds block b of 32 of each group to the sums of a tile. */
KERN_INLINE void add_block_32(bool has_min, int depth, int groups, int rows, const strip *s, int b,
                              const uint8_t (*const *w)[64], const lanes *d, const lanes *min,
                              lanes (*acc)[MAX_ROWS]) {
    const bool plain = has_min || (BIAS == 0 && s->l->offset == 128);
    const size_t scales_at = s->scales_at + sizeof(kern_act) * (size_t)b;
    const size_t excess_at = scales_at + s->excess;
    const char *q[MAX_ROWS];
    const kern_act *a[MAX_ROWS];
    ints sum[GROUPS][MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        const char *row = s->act + (size_t)i * s->act_stride;
        q[i] = number_of(depth == KERN_WORDS, s, i, 32 * b);
        a[i] = (const kern_act *)(row + scales_at);
        KERN_UNROLL for (int g = 0; g < groups; g++) sum[g][i] =
            plain ? ints_zero() : ints_all(*(const int32_t *)(row + excess_at));
    }
    dot(false, depth, groups, rows, 8, w, q, factor_of(ints_all(1)), sum);
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int g = 0; g < groups; g++) {
            lanes scale = lanes_mul(d[g], lanes_all(a[i]->d));
            acc[g][i] = lanes_fma(scale, ints_float(sum[g][i]), acc[g][i]);
            if (has_min) acc[g][i] = lanes_fma(min[g], lanes_all(a[i]->s), acc[g][i]);
        }
    }
}

/* Continues the chains of a tile over blocks of 32. */
KERN_INLINE void chain_32(bool has_min, int depth, int groups, int rows, const strip *s) {
    lanes acc[GROUPS][MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int g = 0; g < groups; g++) acc[g][i] = lanes_load(s->acc[i][g]);
    }
    for (int b = 0; b < s->n; b++) {
        const uint8_t(*w[GROUPS])[64];
        lanes d[GROUPS], min[GROUPS];
        KERN_UNROLL for (int g = 0; g < groups; g++) {
            w[g] = vector_of(depth == KERN_WORDS, &s->p[g], 8 * b);
            d[g] = lanes_load(s->p[g].d[b]);
            min[g] = has_min ? lanes_load(s->p[g].min[b]) : d[g];
        }
        fetch_next(s, b);
        add_block_32(has_min, depth, groups, rows, s, b, w, d, min, acc);
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int g = 0; g < groups; g++) lanes_store(s->acc[i][g], acc[g][i]);
    }
}

/* What the sums of activations of one block contribute. */
KERN_INLINE ints correct(int n_sub, const ints *correction, const kern_act256 *a) {
    const int16_t *sums = n_sub == 8 ? a->sum32 : a->sum16;
    ints all = ints_zero();
    KERN_UNROLL for (int j = 0; j < n_sub / 2; j++) {
        int32_t two;
        memcpy(&two, sums + 2 * j, sizeof two);
        all = ints_add(all, ints_multiply_pairs(correction[j], ints_all(two)));
    }
    return all;
}

/* Continues the chains of a tile over blocks of 256. */
KERN_INLINE void chain_256(int depth, int n_sub, int rows, const strip *s) {
    const bool words = depth == KERN_WORDS;
    const int n_vectors = 64 / n_sub;
    lanes acc[MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) acc[i] = lanes_load(s->acc[i][0]);
    for (int b = 0; b < s->n / 8; b++) {
        const kern_act256 *a[MAX_ROWS];
        ints sum[1][MAX_ROWS], offsets[MAX_ROWS];
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            const char *row = s->act + (size_t)i * s->act_stride;
            a[i] = (const kern_act256 *)(row + s->scales_at) + b;
            offsets[i] = correct(n_sub, s->p->correction + 8 * b, a[i]);
            sum[0][i] = s->l->has_min ? ints_zero() : offsets[i];
        }
        for (int j = 0; j < n_sub; j++) {
            const char *q[MAX_ROWS];
            if (j % (n_sub / 8) == 0) fetch_next(s, 8 * b + j / (n_sub / 8));
            KERN_UNROLL for (int i = 0; i < rows; i++) q[i] =
                number_of(words, s, i, 256 * b + 256 / n_sub * j);
            const uint8_t(*w)[64] = vector_of(words, s->p, 64 * b + n_vectors * j);
            dot(true, depth, 1, rows, n_vectors, &w, q, s->p->factor[n_sub * b + j], sum);
        }
        lanes d = lanes_load(s->p->d[b]), min = lanes_load(s->p->min[b]);
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            lanes ad = lanes_all(a[i]->d);
            acc[i] = lanes_fma(lanes_mul(d, ad), ints_float(sum[0][i]), acc[i]);
            if (s->l->has_min)
                acc[i] = lanes_fma(lanes_mul(min, ad), ints_float(offsets[i]), acc[i]);
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) lanes_store(s->acc[i][0], acc[i]);
}

/* Types with minimums have depth 4 or 8, depth 2 is Q6_K's alone. */
KERN_INLINE void run_tile_32(int depth, int groups, int rows, const strip *s) {
    if (depth >= 4 && s->l->has_min)
        chain_32(true, depth, groups, rows, s);
    else if (depth != 2)
        chain_32(false, depth, groups, rows, s);
}

KERN_INLINE void run_tile_256(int depth, int rows, const strip *s) {
    if (depth != 2 && s->l->n_sub == 8)
        chain_256(depth, 8, rows, s);
    else
        chain_256(depth, 16, rows, s);
}

KERN_INLINE void run_tile(int depth, int rows, const strip *s) {
    if (s->l->block == 256)
        run_tile_256(depth, rows, s);
    else if (GROUPS == 1 || s->n_groups == 1)
        run_tile_32(depth, 1, rows, s);
    else
        run_tile_32(depth, GROUPS, rows, s);
}

/* As many rows as registers hold. */
static inline int most_rows(int depth, const strip *s) {
    return s->l->block == 256 || depth == KERN_WORDS ? MAX_ROWS
           : s->n_groups == 1                        ? ROWS_32
                                                     : ROWS_PAIR;
}

KERN_INLINE void run_whole_tile(int depth, const strip *s) {
    if (s->l->block == 256)
        run_tile_256(depth, MAX_ROWS, s);
    else if (depth == KERN_WORDS)
        run_tile_32(depth, 1, MAX_ROWS, s);
    else if (GROUPS == 1 || s->n_groups == 1)
        run_tile_32(depth, 1, ROWS_32, s);
    else
        run_tile_32(depth, GROUPS, ROWS_PAIR, s);
}

/* How many of the rows left make the next tile: not so many that one or two are left alone. */
static int tile_rows(int left, int most) {
    int rows = left == most || left > most + 2 ? most : left > most ? (left + 1) / 2 : left;
    return rows == most || rows <= 4 ? rows : 4;
}

KERN_INLINE void run_tiles(int depth, strip *s, int rows) {
    const int most = most_rows(depth, s);
    for (int step = 0; rows > 0; rows -= step) {
        step = tile_rows(rows, most);
        switch (step) {
        case 1:
            run_tile(depth, 1, s);
            break;
        case 2:
            run_tile(depth, 2, s);
            break;
        case 3:
            run_tile(depth, 3, s);
            break;
        case 4:
            run_tile(depth, 4, s);
            break;
        default: /* never where four are the most */
            if (MAX_ROWS > 4) run_whole_tile(depth, s);
        }
        s->act += (size_t)step * s->act_stride;
        if (depth == KERN_WORDS) s->words += step;
        s->acc += step;
        s->next[0] = NULL;
    }
}

/* Each on its own: all in one are too much for a compiler to give each the registers it needs. */
#define KERN_APART __attribute__((noinline)) static
KERN_APART void run_nibbles(strip s, int rows) {
    run_tiles(KERN_NIBBLES, &s, rows);
}
KERN_APART void run_words(strip s, int rows) {
    run_tiles(KERN_WORDS, &s, rows);
}
KERN_APART void run_2(strip s, int rows) {
    run_tiles(2, &s, rows);
}
KERN_APART void run_4(strip s, int rows) {
    run_tiles(4, &s, rows);
}
KERN_APART void run_8(strip s, int rows) {
    run_tiles(8, &s, rows);
}

static inline int depth_of(int bits, bool codebook, int rows) {
    if (!PAIRS) return 8;
    if (codebook || bits == 8) return rows >= WORD_ROWS ? KERN_WORDS : KERN_NIBBLES;
    return bits == 6 ? 2 : bits == 5 ? 4 : 8;
}

static int depth_for(const kern_layout *l, int rows) {
    return depth_of(l->bits, l->codebook, rows);
}

/* A strip of bytes. */
static void run_strip(strip s, int rows) {
    switch (depth_for(s.l, rows)) {
    case KERN_NIBBLES:
        run_nibbles(s, rows);
        break;
    case 2:
        run_2(s, rows);
        break;
    case 4:
        run_4(s, rows);
        break;
    default:
        run_8(s, rows);
    }
}

static size_t excess_of_act(const kern_layout *l) {
    return l->offset == 8    ? offsetof(kern_act, n8)
           : l->offset == 16 ? offsetof(kern_act, n16)
                             : offsetof(kern_act, n128);
}

/* One group of blocks of 32 against FEW_ROWS or fewer. */
KERN_INLINE void run_few(int bits, const uint8_t *table, bool has_min, int rows,
                         const kern_layout *l, const kern_tile *t) {
    const uint8_t *quants = t->g[0].quants, *scales = t->g[0].scales;
    const strip s = {.l = l,
                     .act = t->act,
                     .act_stride = t->act_stride,
                     .scales_at = (size_t)t->k,
                     .excess = excess_of_act(l)};
    lanes acc[1][MAX_ROWS];
    KERN_UNROLL for (int i = 0; i < rows; i++) acc[0][i] = lanes_zero();
    for (int b = 0; b < t->g[0].n_blocks; b++, quants += 64 * bits, scales += l->scale_size) {
        _Alignas(64) uint8_t bytes[8][64];
        const uint8_t(*w)[64] = bytes;
        kern_fetch_shares(l, t->g[0].quants + FEW_AHEAD, b, 1);
        unpack_block(bits, table, false, quants, bytes);
        lanes d = load_d(l, scales), min = has_min ? load_min(scales) : d;
        add_block_32(has_min, depth_of(bits, table, rows), 1, rows, &s, b, &w, &d, &min, acc);
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) store_sums(t, i, 0, acc[0][i]);
}

KERN_INLINE void run_few_of(int rows, const kern_layout *l, const kern_tile *t) {
    uint8_t table[16];
    if (l->codebook) {
        ints_codebook(l, table);
        run_few(4, table, false, rows, l, t);
    } else if (l->bits == 4) {
        l->has_min ? run_few(4, NULL, true, rows, l, t) : run_few(4, NULL, false, rows, l, t);
    } else if (l->bits == 5) {
        l->has_min ? run_few(5, NULL, true, rows, l, t) : run_few(5, NULL, false, rows, l, t);
    } else {
        run_few(8, NULL, false, rows, l, t);
    }
}

static void run_few_tile(const kern_tile *t) {
    const kern_layout *l = kern_layout_of(t->type);
    t->rows == 1 ? run_few_of(1, l, t) : run_few_of(2, l, t);
}

/* The blocks of 32 from b of a group. */
static void fill_panel(const kern_layout *l, bool words, const kern_group *g, int b, int n,
                       panel *p) {
    const int per_block = l->block / 32;
    const uint8_t *scales = g->scales + (size_t)(b / per_block) * l->scale_size;
    const uint8_t *quants = g->quants + (size_t)b * 64 * (size_t)l->bits;
    words ? fill_words(l, quants, n, p) : fill_quants(l, quants, n, p);
    per_block == 1 ? fill_scales_32(l, scales, n, p) : fill_scales_256(l, words, scales, n / 8, p);
}

static void widen_rows(int rows, const strip *s, char (*words)[64 * WORD_STRIP]) {
    for (int i = 0; i < rows; i++) {
        const char *q = s->act + (size_t)i * s->act_stride + s->at;
        for (int k = 0; k < 32 * s->n; k += 64) widen(true, ints_load(q + k), words[i] + 2 * k);
    }
}

static strip first_strip(const kern_layout *l, const kern_tile *t, const panel *p) {
    return (strip){.p = p,
                   .l = l,
                   .n_groups = t->n_groups,
                   .act = t->act,
                   .act_stride = t->act_stride,
                   .excess = excess_of_act(l)};
}

/* The strip from block b of 32 on, of `most` at most; false behind the last. */
static bool set_strip(const kern_tile *t, int b, int most, strip *s) {
    const int per_block = s->l->block / 32, left = t->g[0].n_blocks * per_block - b;
    const size_t act_size = s->l->block == 32 ? sizeof(kern_act) : sizeof(kern_act256);
    if (left <= 0) return false;
    s->n = left < most ? left : most;
    s->at = (size_t)b * 32;
    s->scales_at = (size_t)t->k + (size_t)(b / per_block) * act_size;
    for (int i = 0; s->n == left && i < t->rows; i++) /* the outputs may be far away */
        __builtin_prefetch(t->out + (size_t)i * t->out_stride, 1);
    return true;
}

/* One group or, of blocks of 32, GROUPS against up to PANEL_ROWS rows. */
static void run_groups(const kern_tile *t) {
    const kern_layout *l = kern_layout_of(t->type);
    const size_t to_next = kern_mat_size(t->type, t->n_groups * KERN_GROUP, t->k);
    panel p[GROUPS];
    _Alignas(64) float acc[PANEL_ROWS][GROUPS][LANES];
    memset(acc, 0, (size_t)t->rows * sizeof *acc);
    strip s = first_strip(l, t, p);
    s.acc = acc;
    for (int b = 0; set_strip(t, b, STRIP / t->n_groups, &s); b += s.n) {
        for (int g = 0; g < t->n_groups; g++) {
            fill_panel(l, false, &t->g[g], b, s.n, &p[g]);
            s.next[g] = t->g[g].quants + to_next;
        }
        run_strip(s, t->rows);
    }
    for (int i = 0; i < t->rows; i++)
        for (int g = 0; g < t->n_groups; g++) store_sums(t, i, g, lanes_load(acc[i][g]));
}

/* WORD_GROUPS or fewer, one after the other, against up to PANEL_ROWS rows. */
static void run_word_groups(const kern_tile *t) {
    const kern_layout *l = kern_layout_of(t->type);
    const size_t to_next = kern_mat_size(t->type, t->n_groups * KERN_GROUP, t->k);
    panel p;
    _Alignas(64) float acc[WORD_GROUPS][PANEL_ROWS][GROUPS][LANES];
    _Alignas(64) char words[PANEL_ROWS][64 * WORD_STRIP];
    for (int g = 0; g < t->n_groups; g++) memset(acc[g], 0, (size_t)t->rows * sizeof *acc[g]);
    strip s = first_strip(l, t, &p);
    s.words = words;
    s.n_groups = 1;
    for (int b = 0; set_strip(t, b, WORD_STRIP, &s); b += s.n) {
        widen_rows(t->rows, &s, words);
        for (int g = 0; g < t->n_groups; g++) {
            fill_panel(l, true, &t->g[g], b, s.n, &p);
            s.next[0] = t->g[g].quants + to_next;
            s.acc = acc[g];
            run_words(s, t->rows);
        }
    }
    for (int i = 0; i < t->rows; i++)
        for (int g = 0; g < t->n_groups; g++) store_sums(t, i, g, lanes_load(acc[g][i][0]));
}

static int word_groups(const kern_mat *w) {
    size_t n = WORD_AHEAD / kern_mat_size(w->type, KERN_GROUP, w->k);
    return n < 1 ? 1 : n < WORD_GROUPS ? (int)n : WORD_GROUPS;
}

static void gemm(KERN_GEMM_ARGS) {
    const kern_layout *l = kern_layout_of(w->type);
    int rows = PANEL_ROWS, groups = l->block == 32 && m > ROWS_32 ? GROUPS : 1;
    void (*run)(const kern_tile *t) = run_groups;
    if (l->block == 1)
        rows = MAX_FLOAT_ROWS, run = run_float_tile;
    else if (l->block == 32 && m <= FEW_ROWS)
        run = run_few_tile;
    else if (depth_for(l, m) == KERN_WORDS)
        groups = word_groups(w), run = run_word_groups;
    kern_gemm_walk(w, act, act_stride, m, out, out_stride, add, group0, group1, rows, groups, run);
}
