/* Multiply-adds of bytes out of registers: as fast as an instruction set can be fed. The chains
 * are independent and more than the latency of their instruction. */
#include "kern_internal.h"

enum { CHAINS = 12, BURST = 1024 };

static volatile int sink; /* what is computed must look wanted */

static uint64_t burn_scalar(void) {
    int sum[CHAINS], w = sink | 3, x = sink | 5;
    for (int i = 0; i < CHAINS; i++) sum[i] = sink + i;
    for (int n = 0; n < BURST; n++)
        for (int i = 0; i < CHAINS; i++) sum[i] += (w + n) * x;
    for (int i = 0; i < CHAINS; i++) sink = sum[i];
    return BURST * CHAINS;
}

#ifdef KERN_X86
#include <immintrin.h>

#define TARGET(features) __attribute__((target(features)))

TARGET("avx2") static uint64_t burn_avx2(void) {
    __m256i sum[CHAINS], w = _mm256_set1_epi8((char)(sink | 3)), one = _mm256_set1_epi16(1);
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm256_set1_epi32(sink + i);
    for (int n = 0; n < BURST; n++)
        for (int i = 0; i < CHAINS; i++) {
            __m256i pairs = _mm256_maddubs_epi16(w, sum[i]);
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs, one));
        }
    for (int i = 0; i < CHAINS; i++) sink = _mm256_extract_epi32(sum[i], 0);
    return BURST * CHAINS * 32;
}

TARGET("avx2,avxvnni") static uint64_t burn_avxvnni(void) {
    __m256i sum[CHAINS], w = _mm256_set1_epi8((char)(sink | 3));
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm256_set1_epi32(sink + i);
    for (int n = 0; n < BURST; n++)
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm256_dpbusd_avx_epi32(sum[i], w, w);
    for (int i = 0; i < CHAINS; i++) sink = _mm256_extract_epi32(sum[i], 0);
    return BURST * CHAINS * 32;
}

TARGET("avx512f,avx512bw") static uint64_t burn_avx512(void) {
    __m512i sum[CHAINS], w = _mm512_set1_epi8((char)(sink | 3)), one = _mm512_set1_epi16(1);
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_epi32(sink + i);
    for (int n = 0; n < BURST; n++)
        for (int i = 0; i < CHAINS; i++) {
            __m512i pairs = _mm512_maddubs_epi16(w, sum[i]);
            sum[i] = _mm512_add_epi32(sum[i], _mm512_madd_epi16(pairs, one));
        }
    for (int i = 0; i < CHAINS; i++) sink = _mm512_cvtsi512_si32(sum[i]);
    return BURST * CHAINS * 64;
}

TARGET("avx512f,avx512vnni") static uint64_t burn_vnni(void) {
    __m512i sum[CHAINS], w = _mm512_set1_epi8((char)(sink | 3));
    for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_set1_epi32(sink + i);
    for (int n = 0; n < BURST; n++)
        for (int i = 0; i < CHAINS; i++) sum[i] = _mm512_dpbusd_epi32(sum[i], w, w);
    for (int i = 0; i < CHAINS; i++) sink = _mm512_cvtsi512_si32(sum[i]);
    return BURST * CHAINS * 64;
}

TARGET("amx-tile,amx-int8") static uint64_t burn_amx(void) {
    const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16}};
    /* loaded by hand: some compilers think that the instruction reads one word */
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int n = 0; n < BURST; n++) {
        _tile_dpbssd(0, 4, 5);
        _tile_dpbssd(1, 4, 5);
        _tile_dpbssd(2, 4, 5);
        _tile_dpbssd(3, 4, 5);
    }
    _tile_release();
    return BURST * 4 * 16 * 16 * 64;
}
#endif

uint64_t kern_burn(enum kern_isa isa) {
    switch (isa) {
#ifdef KERN_X86
    case KERN_AVX2:
        return burn_avx2();
    case KERN_AVXVNNI:
        return burn_avxvnni();
    case KERN_AVX512:
        return burn_avx512();
    case KERN_VNNI:
        return burn_vnni();
    case KERN_AMX:
        return burn_amx();
#endif
    default:
        return burn_scalar();
    }
}
