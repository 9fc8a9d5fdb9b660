/* Repacking matrices, and reading single numbers back. The layout is drawn in kern_internal.h. */
#include "kern_internal.h"

enum { VECTOR = 64 };

/* ---- float types ----------------------------------------------------------------------------- */

static void pack_floats(const uint8_t *row, size_t size, int n, int lane, uint8_t *quants) {
    for (int i = 0; i < n; i++)
        memcpy(quants + KERN_GROUP * size * (size_t)i + size * (size_t)lane, row + size * (size_t)i,
               size);
}

static float read_float(enum kern_type type, const uint8_t *quants, int lane) {
    if (type == KERN_F32) {
        float x;
        memcpy(&x, quants + 4 * lane, sizeof x);
        return x;
    }
    uint16_t half;
    memcpy(&half, quants + 2 * lane, sizeof half);
    return type == KERN_F16 ? f32_of_f16(half) : f32_of_bf16(half);
}

/* ---- quants ---------------------------------------------------------------------------------- */

/* Four quants a word: those of k = 4v..4v+3 of one lane. */
static inline uint32_t word_at(const uint8_t *p) {
    uint32_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static inline void put_word(uint8_t *p, uint32_t word) {
    memcpy(p, &word, sizeof word);
}

/* Packs 32 quants of a lane. */
static void put_quants(int bits, const uint8_t *q, int lane, uint8_t *quants) {
    uint8_t *to = quants + 4 * lane;
    uint32_t word[8];
    for (int v = 0; v < 8; v++) word[v] = word_at(q + 4 * v);
    if (bits == 8) {
        for (int v = 0; v < 8; v++) put_word(to + VECTOR * v, word[v]);
        return;
    }
    const uint32_t ones = 0x01010101;
    if (bits >= 4) {
        for (int v = 0; v < 4; v++, to += VECTOR)
            put_word(to, (word[v] & 15 * ones) | (word[v + 4] & 15 * ones) << 4);
        for (int v = 0; v < 8; v++) word[v] = word[v] >> 4 & 15 * ones;
        bits -= 4;
    }
    if (bits >= 2) {
        for (int v = 0; v < 2; v++, to += VECTOR)
            put_word(to, (word[v] & 3 * ones) | (word[v + 2] & 3 * ones) << 2 |
                             (word[v + 4] & 3 * ones) << 4 | (word[v + 6] & 3 * ones) << 6);
        for (int v = 0; v < 8; v++) word[v] = word[v] >> 2 & 3 * ones;
        bits -= 2;
    }
    if (bits) {
        uint32_t all = 0;
        for (int v = 0; v < 8; v++) all |= (word[v] & ones) << v;
        put_word(to, all);
    }
}

KERN_INLINE void get_quants(int bits, const uint8_t *quants, int lane, uint8_t q[32]) {
    const uint8_t *from = quants + 4 * lane;
    uint32_t word[8] = {0};
    int shift = 0;
    const uint32_t ones = 0x01010101;
    if (bits == 8)
        for (int v = 0; v < 8; v++) word[v] = word_at(from + VECTOR * v);
    if (bits >= 4 && bits < 8) {
        for (int v = 0; v < 8; v++)
            word[v] = word_at(from + VECTOR * (v % 4)) >> v / 4 * 4 & 15 * ones;
        from += 4 * VECTOR, shift = 4;
    }
    if (bits < 8 && bits - shift >= 2) {
        for (int v = 0; v < 8; v++)
            word[v] |= (word_at(from + VECTOR * (v % 2)) >> v / 2 * 2 & 3 * ones) << shift;
        from += 2 * VECTOR, shift += 2;
    }
    if (bits < 8 && bits > shift)
        for (int v = 0; v < 8; v++) word[v] |= (word_at(from) >> v & ones) << shift;
    for (int v = 0; v < 8; v++) put_word(q + 4 * v, word[v]);
}

KERN_INLINE void read_numbers(int bits, int offset, const uint8_t *quants, int lane,
                              int16_t out[32]) {
    uint8_t q[32];
    get_quants(bits, quants, lane, q);
    for (int i = 0; i < 32; i++) out[i] = (int16_t)(q[i] - offset);
}

void kern_read_numbers(const kern_layout *l, const uint8_t *quants, int lane, int16_t out[32]) {
    switch (l->bits) { /* each becomes straight code */
    case 2:
        read_numbers(2, l->offset, quants, lane, out);
        break;
    case 3:
        read_numbers(3, l->offset, quants, lane, out);
        break;
    case 4:
        read_numbers(4, l->codebook ? 0 : l->offset, quants, lane, out);
        break;
    case 5:
        read_numbers(5, l->offset, quants, lane, out);
        break;
    case 6:
        read_numbers(6, l->offset, quants, lane, out);
        break;
    case 8:
        read_numbers(8, l->offset, quants, lane, out);
        break;
    }
    for (int i = 0; l->codebook && i < 32; i++) out[i] = l->codebook[out[i]];
}

/* ---- scales ---------------------------------------------------------------------------------- */

static inline void put_half(uint8_t *halves, int lane, uint16_t half) {
    memcpy(halves + 2 * lane, &half, sizeof half);
}

static inline uint16_t get_half(const uint8_t *halves, int lane) {
    uint16_t half;
    memcpy(&half, halves + 2 * lane, sizeof half);
    return half;
}

static void put_scales(const kern_layout *l, const kern_block *b, int lane, uint8_t *scales) {
    put_half(scales, lane, b->d);
    if (l->has_min) put_half(scales + 32, lane, b->min);
    uint8_t *sub = scales + (l->has_min ? 64 : 32) + lane, *submin = sub + KERN_GROUP * l->n_sub;
    for (int j = 0; j < l->n_sub; j++) {
        if (l->joint_sub)
            sub[KERN_GROUP * j] = (uint8_t)(b->sub[j] | b->submin[j] << 4);
        else
            sub[KERN_GROUP * j] = (uint8_t)b->sub[j];
        if (l->has_min && !l->joint_sub) submin[KERN_GROUP * j] = b->submin[j];
    }
}

void kern_read_scales(const kern_layout *l, const uint8_t *scales, int lane, kern_scales *out) {
    uint16_t d = get_half(scales, lane);
    out->d = (l->wide_exponent ? f32_of_bf16(d) : f32_of_f16(d)) * l->factor;
    out->min = l->has_min ? f32_of_f16(get_half(scales + 32, lane)) : 0;
    if (!l->n_sub) return;
    const uint8_t *sub = scales + (l->has_min ? 64 : 32) + lane,
                  *submin = sub + KERN_GROUP * l->n_sub;
    for (int i = 0; i < 16; i++) {
        int at = KERN_GROUP * (i * l->n_sub / 16);
        out->sub[i] = l->joint_sub ? sub[at] & 15 : (int8_t)sub[at];
        out->submin[i] = l->joint_sub ? sub[at] >> 4 : l->has_min ? submin[at] : 0;
    }
}

/* ---- matrices -------------------------------------------------------------------------------- */

static size_t round_up_64(size_t size) {
    return (size + 63) & ~(size_t)63;
}

static size_t group_size(const kern_layout *l, int k) {
    return round_up_64((size_t)(k / l->block) * (l->quant_size + l->scale_size));
}

size_t kern_mat_size(enum kern_type type, int n, int k) {
    return (size_t)kern_n_groups(n) * group_size(kern_layout_of(type), k);
}

kern_group kern_group_of(const kern_mat *m, int group) {
    const kern_layout *l = kern_layout_of(m->type);
    int n_blocks = m->k / l->block, n_left = m->n - group * KERN_GROUP;
    const uint8_t *quants = (const uint8_t *)m->data + (size_t)group * group_size(l, m->k);
    return (kern_group){.quants = quants,
                        .scales = quants + (size_t)n_blocks * l->quant_size,
                        .n_blocks = n_blocks,
                        .n_lanes = n_left < KERN_GROUP ? n_left : KERN_GROUP};
}

static void pack_row(const kern_layout *l, const uint8_t *row, int n_blocks, int lane,
                     uint8_t *quants, uint8_t *scales) {
    if (l->block == 1) {
        pack_floats(row, l->file_size, n_blocks, lane, quants);
        return;
    }
    kern_block block;
    for (int b = 0; b < n_blocks; b++, row += l->file_size, scales += l->scale_size) {
        l->take_apart(row, &block);
        put_scales(l, &block, lane, scales);
        for (int i = 0; i < l->block; i += 32, quants += VECTOR * l->bits)
            put_quants(l->bits, block.q + i, lane, quants);
    }
}

void kern_pack(const kern_mat *m, const void *rows, int group0, int group1) {
    const kern_layout *l = kern_layout_of(m->type);
    size_t size = group_size(l, m->k), row_size = (size_t)(m->k / l->block) * l->file_size;
    for (int group = group0; group < group1; group++) {
        kern_group g = kern_group_of(m, group);
        uint8_t *quants = (uint8_t *)m->data + (size_t)group * size;
        uint8_t *scales = quants + (size_t)g.n_blocks * l->quant_size;
        if (g.n_lanes < KERN_GROUP) memset(quants, 0, size);
        const uint8_t *row = (const uint8_t *)rows + (size_t)group * KERN_GROUP * row_size;
        for (int lane = 0; lane < g.n_lanes; lane++, row += row_size)
            pack_row(l, row, g.n_blocks, lane, quants, scales);
    }
}

/* As ggml: d·q, d·q + min; (d·sub)·q - min·submin. All products but the last of Q6_K are exact. */
static void unpack_block(const kern_layout *l, const uint8_t *quants, const uint8_t *scales,
                         int lane, float *out) {
    kern_scales s;
    kern_read_scales(l, scales, lane, &s);
    for (int i0 = 0; i0 < l->block; i0 += 32, quants += VECTOR * l->bits) {
        int16_t number[32];
        kern_read_numbers(l, quants, lane, number);
        for (int i = 0; i < 32; i++, out++) {
            if (l->block == 32) {
                *out = (float)number[i] * s.d;
                if (l->has_min) *out += s.min;
            } else {
                int j = (i0 + i) / 16;
                *out = s.d * (float)s.sub[j] * (float)number[i];
                if (l->has_min) *out -= s.min * (float)s.submin[j];
            }
        }
    }
}

void kern_unpack_row(const kern_mat *m, int row, float *out) {
    const kern_layout *l = kern_layout_of(m->type);
    kern_group g = kern_group_of(m, row / KERN_GROUP);
    for (int b = 0; b < g.n_blocks; b++) {
        const uint8_t *quants = g.quants + (size_t)b * l->quant_size;
        if (l->block == 1)
            out[b] = read_float(m->type, quants, row % KERN_GROUP);
        else
            unpack_block(l, quants, g.scales + (size_t)b * l->scale_size, row % KERN_GROUP,
                         out + b * l->block);
    }
}

void kern_widen(enum kern_type type, size_t n, const void *from, float *to) {
    const uint16_t *half = from;
    for (size_t i = 0; type == KERN_F16 && i < n; i++) to[i] = f32_of_f16(half[i]);
    for (size_t i = 0; type == KERN_BF16 && i < n; i++) to[i] = f32_of_bf16(half[i]);
    if (type == KERN_F32) memcpy(to, from, n * sizeof *to);
}

size_t kern_act_stride(enum kern_type type, int k) {
    size_t n = (size_t)k;
    switch (kern_form_of(type)) {
    case KERN_FORM_FLOAT:
        return round_up_64(n * sizeof(float));
    case KERN_FORM_32:
        return round_up_64(n + n / 32 * sizeof(kern_act));
    default:
        return round_up_64(n + n / 256 * sizeof(kern_act256));
    }
}
