#include "kern_internal.h"

enum { VECTOR = 64 };

static inline void put_scale(uint8_t *scales, int lane, const uint8_t *half) {
    memcpy(scales + 2 * lane, half, 2);
}

static inline float get_scale(const uint8_t *scales, int lane) {
    uint16_t half;
    memcpy(&half, scales + 2 * lane, 2);
    return f32_of_f16(half);
}

/* ---- F32, F16, BF16 -------------------------------------------------------------------------- */

static void pack_f32(const uint8_t *row, int n, int lane, uint8_t *quants, uint8_t *scales) {
    for (int i = 0; i < n; i++) memcpy(quants + 64 * (size_t)i + 4 * lane, row + 4 * (size_t)i, 4);
}

static void unpack_f32(const uint8_t *quants, const uint8_t *scales, int lane, int n, float *out) {
    for (int i = 0; i < n; i++) memcpy(out + i, quants + 64 * (size_t)i + 4 * lane, 4);
}

static void pack_16(const uint8_t *row, int n, int lane, uint8_t *quants, uint8_t *scales) {
    for (int i = 0; i < n; i++) memcpy(quants + 32 * (size_t)i + 2 * lane, row + 2 * (size_t)i, 2);
}

static void unpack_f16(const uint8_t *quants, const uint8_t *scales, int lane, int n, float *out) {
    for (int i = 0; i < n; i++) out[i] = get_scale(quants + 32 * (size_t)i, lane);
}

static void unpack_bf16(const uint8_t *quants, const uint8_t *scales, int lane, int n, float *out) {
    for (int i = 0; i < n; i++) {
        uint16_t half;
        memcpy(&half, quants + 32 * (size_t)i + 2 * lane, 2);
        out[i] = f32_of_bf16(half);
    }
}

/* ---- Q8_0: {f16 d; int8 q[32]}, x = d·q ------------------------------------------------------ */

static void pack_q8_0(const uint8_t *row, int n, int lane, uint8_t *quants, uint8_t *scales) {
    for (int b = 0; b < n; b++, row += 34, quants += 8 * VECTOR, scales += 32) {
        put_scale(scales, lane, row);
        for (int v = 0; v < 8; v++) {
            uint32_t four;
            memcpy(&four, row + 2 + 4 * v, 4);
            four ^= 0x80808080;
            memcpy(quants + VECTOR * v + 4 * lane, &four, 4);
        }
    }
}

static void unpack_q8_0(const uint8_t *quants, const uint8_t *scales, int lane, int n, float *out) {
    for (int b = 0; b < n; b++, quants += 8 * VECTOR, scales += 32, out += 32)
        for (int i = 0; i < 32; i++)
            out[i] = (float)(quants[VECTOR * (i / 4) + 4 * lane + i % 4] - 128) *
                     get_scale(scales, lane);
}

/* ---- Q4_0: {f16 d; nibbles q[16]}, x = d·(q - 8); Q4_1: {f16 d, m; …}, x = d·q + m ----------- */

static inline void pack_nibbles(const uint8_t *nibbles, int lane, uint8_t *quants) {
    for (int v = 0; v < 4; v++) memcpy(quants + VECTOR * v + 4 * lane, nibbles + 4 * v, 4);
}

static inline int nibble(const uint8_t *quants, int lane, int i) {
    return quants[VECTOR * (i % 16 / 4) + 4 * lane + i % 4] >> (i < 16 ? 0 : 4) & 15;
}

static void pack_q4_0(const uint8_t *row, int n, int lane, uint8_t *quants, uint8_t *scales) {
    for (int b = 0; b < n; b++, row += 18, quants += 4 * VECTOR, scales += 32) {
        put_scale(scales, lane, row);
        pack_nibbles(row + 2, lane, quants);
    }
}

static void unpack_q4_0(const uint8_t *quants, const uint8_t *scales, int lane, int n, float *out) {
    for (int b = 0; b < n; b++, quants += 4 * VECTOR, scales += 32, out += 32)
        for (int i = 0; i < 32; i++)
            out[i] = (float)(nibble(quants, lane, i) - 8) * get_scale(scales, lane);
}

static void pack_q4_1(const uint8_t *row, int n, int lane, uint8_t *quants, uint8_t *scales) {
    for (int b = 0; b < n; b++, row += 20, quants += 4 * VECTOR, scales += 64) {
        put_scale(scales, lane, row);
        put_scale(scales + 32, lane, row + 2);
        pack_nibbles(row + 4, lane, quants);
    }
}

static void unpack_q4_1(const uint8_t *quants, const uint8_t *scales, int lane, int n, float *out) {
    for (int b = 0; b < n; b++, quants += 4 * VECTOR, scales += 64, out += 32) {
        float d = get_scale(scales, lane), m = get_scale(scales + 32, lane);
        for (int i = 0; i < 32; i++) out[i] = (float)nibble(quants, lane, i) * d + m;
    }
}

/* ---- matrices -------------------------------------------------------------------------------- */

const kern_layout *kern_layout_of(int type) {
    static const kern_layout f32 = {1, 4, 64, 0, pack_f32, unpack_f32};
    static const kern_layout f16 = {1, 2, 32, 0, pack_16, unpack_f16};
    static const kern_layout bf16 = {1, 2, 32, 0, pack_16, unpack_bf16};
    static const kern_layout q8_0 = {32, 34, 8 * VECTOR, 32, pack_q8_0, unpack_q8_0};
    static const kern_layout q4_0 = {32, 18, 4 * VECTOR, 32, pack_q4_0, unpack_q4_0};
    static const kern_layout q4_1 = {32, 20, 4 * VECTOR, 64, pack_q4_1, unpack_q4_1};
    switch (type) {
    case KERN_F32:
        return &f32;
    case KERN_F16:
        return &f16;
    case KERN_BF16:
        return &bf16;
    case KERN_Q8_0:
        return &q8_0;
    case KERN_Q4_0:
        return &q4_0;
    case KERN_Q4_1:
        return &q4_1;
    default:
        return NULL;
    }
}

bool kern_type_known(int type) {
    return kern_layout_of(type) != NULL;
}

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
            l->pack_row(row, g.n_blocks, lane, quants, scales);
    }
}

void kern_unpack_row(const kern_mat *m, int row, float *out) {
    kern_group g = kern_group_of(m, row / KERN_GROUP);
    kern_layout_of(m->type)->unpack_row(g.quants, g.scales, row % KERN_GROUP, g.n_blocks, out);
}

void kern_widen(enum kern_type type, size_t n, const void *from, float *to) {
    const uint16_t *half = from;
    for (size_t i = 0; type == KERN_F16 && i < n; i++) to[i] = f32_of_f16(half[i]);
    for (size_t i = 0; type == KERN_BF16 && i < n; i++) to[i] = f32_of_bf16(half[i]);
    if (type == KERN_F32) memcpy(to, from, n * sizeof *to);
}

size_t kern_act_stride(enum kern_type type, int k) {
    if (kern_layout_of(type)->block == 1) return round_up_64((size_t)k * sizeof(float));
    return round_up_64((size_t)k + (size_t)(k / KERN_BLOCK) * sizeof(kern_act));
}
