/* Two hash tables that are filled once and then only read: token keys, and merge rules.
 *
 * Both are open addressing with linear probing at a load of at most one half. Slots hold ids, not
 * texts: a slot's 32 bits of hash sort out nearly all comparisons. */
#include "tokenizer_internal.h"

#include <string.h>
#include <xxhash.h>

static size_t slots_for(size_t n) {
    size_t slots = 16;
    while (slots < 2 * n) slots *= 2;
    return slots;
}

static uint64_t hash_key(const char *key, size_t len) {
    return XXH3_64bits(key, len);
}

int token_table_init(token_table *table, arena *mem, const text_str *keys, size_t n) {
    size_t slots = slots_for(n);
    *table = (token_table){.mask = slots - 1, .keys = keys};
    table->slots = arena_alloc(mem, slots * sizeof *table->slots);
    if (!table->slots) return ICP_ENOMEM;
    for (size_t i = 0; i < slots; i++) table->slots[i] = (struct token_slot){.id = -1};
    return 0;
}

/* The slot that holds key, or the free one where it belongs. */
static struct token_slot *slot_of(const token_table *table, const char *key, size_t len,
                                  uint64_t hash) {
    for (size_t i = hash & table->mask;; i = (i + 1) & table->mask) {
        struct token_slot *slot = &table->slots[i];
        if (slot->id < 0) return slot;
        const text_str *there = &table->keys[slot->id];
        if (slot->hash == (uint32_t)(hash >> 32) && there->len == len &&
            !memcmp(there->data, key, len))
            return slot;
    }
}

void token_table_put(token_table *table, int32_t id) {
    text_str key = table->keys[id];
    uint64_t hash = hash_key(key.data, key.len);
    struct token_slot *slot = slot_of(table, key.data, key.len, hash);
    if (slot->id >= 0) return;
    *slot = (struct token_slot){.hash = (uint32_t)(hash >> 32), .id = id};
    table->max_len = MAX(table->max_len, key.len);
}

int32_t token_table_find(const token_table *table, const char *key, size_t len) {
    if (len > table->max_len) return -1; /* keeps a look-up O(1) for any length */
    return slot_of(table, key, len, hash_key(key, len))->id;
}

static uint64_t hash_pair(int32_t left, int32_t right) {
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 32;
}

int rule_table_init(rule_table *table, arena *mem, size_t n) {
    size_t slots = slots_for(n);
    *table = (rule_table){.mask = slots - 1};
    table->slots = arena_alloc(mem, slots * sizeof *table->slots);
    if (!table->slots) return ICP_ENOMEM;
    for (size_t i = 0; i < slots; i++) table->slots[i] = (merge_rule){.left = -1};
    return 0;
}

static merge_rule *rule_slot(const rule_table *table, int32_t left, int32_t right) {
    for (size_t i = hash_pair(left, right) & table->mask;; i = (i + 1) & table->mask) {
        merge_rule *slot = &table->slots[i];
        if (slot->left < 0 || (slot->left == left && slot->right == right)) return slot;
    }
}

void rule_table_put(rule_table *table, merge_rule rule) {
    merge_rule *slot = rule_slot(table, rule.left, rule.right);
    if (slot->left < 0) *slot = rule;
}

const merge_rule *rule_table_find(const rule_table *table, int32_t left, int32_t right) {
    const merge_rule *slot = rule_slot(table, left, right);
    return slot->left < 0 ? NULL : slot;
}
