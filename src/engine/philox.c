#include "engine_internal.h"

void philox(uint32_t block[4], const uint32_t key[2]) {
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53 * block[0], b = (uint64_t)0xCD9E8D57 * block[2];
        uint32_t c0 = (uint32_t)(b >> 32) ^ block[1] ^ k0;
        uint32_t c2 = (uint32_t)(a >> 32) ^ block[3] ^ k1;
        block[0] = c0, block[1] = (uint32_t)b, block[2] = c2, block[3] = (uint32_t)a;
        k0 += 0x9E3779B9, k1 += 0xBB67AE85;
    }
}

uint64_t philox_draw(uint64_t seed, uint32_t choice, uint64_t position) {
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t block[4] = {(uint32_t)position, (uint32_t)(position >> 32), choice, 0};
    philox(block, key);
    return (uint64_t)block[1] << 32 | block[0];
}
