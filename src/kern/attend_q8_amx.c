/* Attention over pages of type Q8_0 with AMX: 16 rows × 16 columns × one block of a key, or all
 * tokens of a page, are one tile product. A few rows go by vectors. */
#include "ints.h"

enum { Q8_TILE_ROWS = 4, Q8_TILE_WIDTH = 4, TILES_FROM = 6 /* rows */ };

static inline ints add_fours(ints sum, ints a, ints b) {
    return _mm512_dpbusd_epi32(sum, a, b);
}

#include "attend_q8_fours.h"

/* GCC's intrinsics do not say which memory they read; what they are to find there must be written
 * before. */
static inline void finish_stores(void) {
    __asm__ volatile("" ::: "memory");
}

/* Tiles 0..3: sums; 4: queries, 5: keys, one block of them; 6: weights, 7: values, one page. */
static inline void begin_rows(const group *g) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_size[16];
        uint8_t n_rows[16];
    } c = {.palette = 1};
    if (g->n_rows < TILES_FROM) return;
    for (int i = 0; i < 8; i++) c.row_size[i] = 64, c.n_rows[i] = Q8_ROWS;
    c.row_size[4] = KERN_BLOCK, c.n_rows[5] = KERN_BLOCK / 4;
    finish_stores();
    _tile_loadconfig(&c);
}

static inline void end_rows(void) {
    _tile_release();
}

/* Sums of 16 columns; tmm is a constant. */
#define SUM_COLUMNS(keys, tmm, p, col)                                                             \
    do {                                                                                           \
        const char *right_at = (const char *)(p)->right + (size_t)(col)*4;                         \
        if (keys) {                                                                                \
            _tile_loadd(tmm, (p)->start, 64);                                                      \
            _tile_loadd(5, right_at, (p)->right_stride);                                           \
            _tile_dpbsud(tmm, 4, 5);                                                               \
        } else {                                                                                   \
            _tile_zero(tmm);                                                                       \
            _tile_loadd(7, right_at, (p)->right_stride);                                           \
            _tile_dpbusd(tmm, 6, 7);                                                               \
        }                                                                                          \
        _tile_stored(tmm, (p)->sum + (col), (p)->sum_stride * 4);                                  \
    } while (0)

KERN_INLINE void multiply(bool keys, const product *p) {
    if (p->n_rows < TILES_FROM) {
        dot(keys, p);
        return;
    }
    finish_stores();
    if (keys)
        _tile_loadd(4, p->left, p->left_stride);
    else
        _tile_loadd(6, p->left, p->left_stride);
    int col = 0;
    for (; col + 4 * LANES <= p->n_cols; col += 4 * LANES) {
        SUM_COLUMNS(keys, 0, p, col);
        SUM_COLUMNS(keys, 1, p, col + LANES);
        SUM_COLUMNS(keys, 2, p, col + 2 * LANES);
        SUM_COLUMNS(keys, 3, p, col + 3 * LANES);
    }
    for (; col < p->n_cols; col += LANES) SUM_COLUMNS(keys, 0, p, col);
    finish_stores();
}

void attend_any_amx(const kern_attend *a) {
    a->kv == KERN_Q8_0 ? q8_attend(a) : attend_avx512(a);
}
