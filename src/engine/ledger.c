/* Bytes that requests have: taken before they are allocated, from any thread. */
#include "engine_internal.h"

int ledger_new(size_t limit, ledger **out) {
    *out = mem_zero(1, sizeof **out);
    if (!*out) return ICP_ENOMEM;
    (*out)->limit = limit;
    atomic_init(&(*out)->refs, 1);
    return 0;
}

ledger *ledger_ref(ledger *l) {
    atomic_fetch_add(&l->refs, 1);
    return l;
}

void ledger_unref(ledger *l) {
    if (l && atomic_fetch_sub(&l->refs, 1) == 1) mem_free(l);
}

size_t ledger_room(const ledger *l, int eighths) {
    return l->limit / LEDGER_ALL * (size_t)eighths;
}

bool ledger_take(ledger *l, size_t size, int eighths) {
    size_t used = atomic_load(&l->used), most = ledger_room(l, eighths);
    do
        if (used > most || size > most - used) return false;
    while (!atomic_compare_exchange_weak(&l->used, &used, used + size));
    return true;
}

void ledger_give(ledger *l, size_t size) {
    atomic_fetch_sub(&l->used, size);
}

bool ledger_take_events(ledger *l, size_t size) {
    if (!ledger_take(l, size, LEDGER_ALL)) return false;
    atomic_fetch_add(&l->events, size);
    return true;
}

void ledger_give_events(ledger *l, size_t size) {
    atomic_fetch_sub(&l->events, size);
    ledger_give(l, size);
}

size_t ledger_unread_limit(const ledger *l) {
    enum { SHARE = 4, PART = 8, LEAST = 4 << 10, MOST = 256 << 10 };
    size_t share = l->limit / SHARE, taken = atomic_load(&l->events);
    if (taken >= share) return 0;
    return MIN(MAX((share - taken) / PART, (size_t)LEAST), (size_t)MOST);
}
