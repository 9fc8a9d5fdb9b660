/* Products of bytes for attend_q8_lanes.h by vector instructions. The including file sets the
 * shape of a tile, Q8_TILE_ROWS × Q8_TILE_WIDTH, and supplies
 *
 *     factor                      16 columns × 4 bytes as products take them
 *     load_factor(keys, bytes)
 *     first_sums(keys, product, row)
 *     add_quads(keys, sum, factor, left, odd)   adds the products with the quad of the row at left
 *     left_bytes, spread          see attend_q8_lanes.h */
#ifndef ATTEND_Q8_DOTS_H
#define ATTEND_Q8_DOTS_H

/* Rows [first, first + rows), columns [col, col + 16·width). */
KERN_INLINE void dot_tile(bool keys, int rows, int width, const product *p, int first, int col) {
    ints sum[Q8_TILE_ROWS][Q8_TILE_WIDTH];
    const char *left = p->left + (size_t)first * p->left_stride;
    const char *right = (const char *)p->right + col * 4;
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int j = 0; j < width; j++) sum[i][j] = first_sums(keys, p, first + i);
    }
    for (int k = 0; k < p->n_quads; k++, right += p->right_stride, left += 4) {
        factor x[Q8_TILE_WIDTH];
        KERN_UNROLL for (int j = 0; j < width; j++) {
            __builtin_prefetch((const char *)((intptr_t)right + p->ahead + j * 64));
            x[j] = load_factor(keys, right + j * 64);
        }
        KERN_UNROLL for (int i = 0; i < rows; i++) {
            KERN_UNROLL for (int j = 0; j < width; j++) sum[i][j] =
                add_quads(keys, sum[i][j], x[j], left + (size_t)i * p->left_stride, p->left_odd);
        }
    }
    KERN_UNROLL for (int i = 0; i < rows; i++) {
        KERN_UNROLL for (int j = 0; j < width; j++)
            ints_store(p->sum + (size_t)(first + i) * p->sum_stride + col + j * LANES, sum[i][j]);
    }
}

KERN_INLINE void dot_columns(bool keys, int width, const product *p, int col) {
    int row = 0;
    for (; row + Q8_TILE_ROWS <= p->n_rows; row += Q8_TILE_ROWS)
        dot_tile(keys, Q8_TILE_ROWS, width, p, row, col);
    int rest = p->n_rows - row;
    if (rest == 3) dot_tile(keys, 3, width, p, row, col);
    if (rest == 2) dot_tile(keys, 2, width, p, row, col);
    if (rest == 1) dot_tile(keys, 1, width, p, row, col);
}

KERN_INLINE void dot(bool keys, const product *p) {
    int col = 0;
    for (; col + Q8_TILE_WIDTH * LANES <= p->n_cols; col += Q8_TILE_WIDTH * LANES)
        dot_columns(keys, Q8_TILE_WIDTH, p, col);
    for (; col < p->n_cols; col += LANES) dot_columns(keys, 1, p, col);
}

#endif
