#include "kern_internal.h"

#ifdef KERN_X86
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef KERN_ARM
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static const char *const names[KERN_N_ISA] = {
    "scalar", "avx2", "avxvnni", "avx512", "vnni", "amx", "neon", "dotprod", "i8mm",
};

const char *kern_isa_name(enum kern_isa isa) {
    return names[isa];
}

int kern_isa_find(const char *name) {
    for (int isa = 0; isa < KERN_N_ISA; isa++)
        if (!strcmp(names[isa], name)) return isa;
    return -1;
}

#ifdef KERN_X86

/* CPUID says what the processor knows, XCR0 which registers the OS saves, and for AMX's 8 kB of
 * tiles Linux wants to be asked by each process (Intel SDM 1, 13.3 and 14.3; Linux,
 * Documentation/arch/x86/xstate.rst). */
static uint64_t saved_state(void) {
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static bool tiles_permitted(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* The usable instruction sets, bit by bit: AVXVNNI and AVX512 do not imply each other. */
static unsigned probe(void) {
    enum { AVX_STATE = 0x6, AVX512_STATE = 0xe6, TILE_STATE = 0x60000 };
    enum { OSXSAVE = 1 << 27, FMA = 1 << 12, F16C = 1 << 29 };       /* 1.ecx */
    enum { AVX2 = 1 << 5, F = 1 << 16, DQ = 1 << 17, BW = 1 << 30 }; /* 7.ebx */
    enum { VNNI = 1 << 11 };                                         /* 7.ecx */
    enum { AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25 };                 /* 7.edx */
    enum { AVX_VNNI = 1 << 4 };                                      /* 7.1.eax */
    const uint32_t VL = 1u << 31;                                    /* 7.ebx */
    const uint32_t need1 = OSXSAVE | FMA | F16C, need512 = F | DQ | BW | VL;
    const uint32_t need_amx = AMX_TILE | AMX_INT8;
    uint32_t a, b, c, d, a1, rest;
    unsigned usable = 1 << KERN_SCALAR;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & need1) != need1) return usable;
    uint64_t state = saved_state();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return usable;
    if (!(b & AVX2) || (state & AVX_STATE) != AVX_STATE) return usable;
    usable |= 1 << KERN_AVX2;
    if (a >= 1 && __get_cpuid_count(7, 1, &a1, &rest, &rest, &rest) && (a1 & AVX_VNNI))
        usable |= 1 << KERN_AVXVNNI;
    if ((b & need512) != need512 || (state & AVX512_STATE) != AVX512_STATE) return usable;
    usable |= 1 << KERN_AVX512;
    if (!(c & VNNI)) return usable;
    usable |= 1 << KERN_VNNI;
    if ((d & need_amx) == need_amx && (state & TILE_STATE) == TILE_STATE && tiles_permitted())
        usable |= 1 << KERN_AMX;
    return usable;
}

#elif defined(KERN_ARM)

/* What Linux tells of the processor (Documentation/arm64/elf_hwcaps.rst). */
static unsigned probe(void) {
    unsigned long words[] = {getauxval(AT_HWCAP), getauxval(AT_HWCAP2)};
    unsigned usable = 1 << KERN_SCALAR;
    if (!(words[0] & HWCAP_ASIMD)) return usable;
    usable |= 1 << KERN_NEON;
    if (!(words[0] & HWCAP_ASIMDDP)) return usable;
    usable |= 1 << KERN_DOTPROD;
    if (words[1] & HWCAP2_I8MM) usable |= 1 << KERN_I8MM;
    return usable;
}

#else
static unsigned probe(void) {
    return 1 << KERN_SCALAR;
}
#endif

enum kern_isa kern_isa_best(void) {
    unsigned usable = probe();
    int best = KERN_N_ISA - 1;
    while (!(usable >> best & 1)) best--;
    return (enum kern_isa)best;
}

bool kern_isa_usable(enum kern_isa isa) {
    return probe() >> isa & 1;
}
