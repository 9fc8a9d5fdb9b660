/* Why a prompt was computed of which an earlier message had the beginning: `diagnostics` of a
 * message. https://platform.claude.com/docs/en/build-with-claude/cache-diagnostics
 *
 *   store[msg_…]  {"prompt":1234,"parts":["other","tools","system","message",…]}
 *
 * A request with `diagnostics` leaves a hash of each part of its chat body, without breakpoints;
 * the labels of clients are not in it. The next request names it and is compared part by part: the
 * first one that differs is the reason. Nothing is a reason unless tokens were missed by it. */
#include <string.h>
#include <xxhash.h>

#include "anthropic.h"
#include "store.h"

enum { OTHER, TOOLS, SYSTEM, MESSAGES };

struct diagnosis {
    json_object *parts;
    const char *reason; /* NULL: as far as the message before went, nothing has changed */
    size_t n_before;    /* tokens of its prompt; 0: there is none to compare with */
};

static void add_hash(json_object *parts, json_object *value) {
    const char *text = value ? json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN) : NULL;
    uint64_t hash = text ? XXH3_64bits(text, strlen(text)) : 0;
    json_object_array_add(parts, json_object_new_int64((int64_t)(hash >> 1)));
}

/* Breakpoints move from turn to turn: tools, or parts of a message, as they are without. */
static json_object *without_breakpoints(json_object *value) {
    json_object *copy = NULL;
    if (!value || json_object_deep_copy(value, &copy, NULL) < 0) return NULL;
    bool list = json_object_is_type(copy, json_type_array);
    json_object *parts = list ? copy : field_get(copy, "content");
    for (size_t i = 0;
         json_object_is_type(parts, json_type_array) && i < json_object_array_length(parts); i++)
        json_object_object_del(json_object_array_get_idx(parts, i), "prompt_cache_breakpoint");
    return copy;
}

static void add_part(json_object *parts, json_object *value) {
    json_object *plain = without_breakpoints(value);
    add_hash(parts, plain);
    json_object_put(plain);
}

static bool is_system(json_object *message) {
    return !strcmp(json_object_get_string(field_get(message, "role")), "system");
}

/* What else shapes a prompt. */
static void add_other(json_object *parts, json_object *chat) {
    static const char *const names[] = {"tool_choice", "reasoning_effort", "chat_template_kwargs",
                                        "cache_salt"};
    json_object *other = json_object_new_array();
    for (size_t i = 0; i < COUNT_OF(names); i++)
        json_object_array_add(other, json_object_get(field_get(chat, names[i])));
    add_hash(parts, other);
    json_object_put(other);
}

static json_object *hash_parts(json_object *chat) {
    json_object *parts = json_object_new_array(), *messages = field_get(chat, "messages");
    if (!parts) return NULL;
    size_t at = 0, n = json_object_array_length(messages);
    add_other(parts, chat);
    add_part(parts, field_get(chat, "tools"));
    bool system = n && is_system(json_object_array_get_idx(messages, 0));
    add_part(parts, system ? json_object_array_get_idx(messages, at++) : NULL);
    for (; at < n; at++) add_part(parts, json_object_array_get_idx(messages, at));
    return parts;
}

static bool differ(json_object *before, json_object *now, size_t i) {
    json_object *part = json_object_array_get_idx(now, i);
    return !part || !json_object_equal(json_object_array_get_idx(before, i), part);
}

/* What of the message before is not there again. */
static const char *compare(json_object *before, json_object *now) {
    if (differ(before, now, TOOLS)) return "tools_changed";
    if (differ(before, now, SYSTEM)) return "system_changed";
    for (size_t i = MESSAGES; i < json_object_array_length(before); i++)
        if (differ(before, now, i)) return "messages_changed";
    return differ(before, now, OTHER) ? "unavailable" : NULL;
}

static void look_back(diagnosis *d, const call *c, const char *id) {
    buf kept = {0};
    bool there = store_get(c->server->store, c->tenant, id, NULL, &kept);
    json_object *record = there && kept.len ? json_read_whole(kept.data, kept.len) : NULL;
    json_object *parts = record ? field_get(record, "parts") : NULL;
    if (parts) {
        d->n_before = (size_t)json_object_get_int64(field_get(record, "prompt"));
        d->reason = compare(parts, d->parts);
    } else {
        d->reason = "previous_message_not_found";
    }
    json_object_put(record);
    buf_fini(&kept);
}

bool diagnosis_open(diagnosis **out, call *c, json_object *body, json_object *chat) {
    json_object *wanted = field_of_type(body, "diagnostics", json_type_object, &c->reply);
    json_object *id = wanted ? field_inside(wanted, "diagnostics.", "previous_message_id",
                                            json_type_string, &c->reply)
                             : NULL;
    *out = NULL;
    if (!wanted || c->reply.status) return !c->reply.status;
    diagnosis *d = mem_zero(1, sizeof *d);
    if (d) d->parts = hash_parts(chat);
    if (!d || !d->parts) {
        diagnosis_free(d);
        return reply_error(&c->reply, 503, NULL, NULL, "Out of memory."), false;
    }
    if (id) look_back(d, c, json_object_get_string(id));
    *out = d;
    return true;
}

void diagnosis_free(void *own) {
    diagnosis *d = own;
    if (!d) return;
    json_object_put(d->parts);
    mem_free(d);
}

void diagnosis_keep(const generation *g) {
    const diagnosis *d = g->own;
    if (!d) return;
    buf none = {0}, record = {0};
    buf_printf(&record, "{\"prompt\":%zu,\"parts\":%s}", g->prompts[0].ids.n,
               json_object_to_json_string_ext(d->parts, JSON_C_TO_STRING_PLAIN));
    buf_puts(&none, "");
    store_put(g->call->server->store, g->call->tenant, g->id, &none, &record);
    buf_fini(&record);
    buf_fini(&none);
}

void put_diagnosis(const generation *g, buf *out, size_t n_cached) {
    const diagnosis *d = g->own;
    if (!d) return;
    /* The last token is always computed. */
    size_t missed = d->n_before > n_cached + 1 ? d->n_before - n_cached : 0;
    const char *reason = missed && !d->reason ? "unavailable" : d->reason;
    buf_puts(out, ",\"diagnostics\":");
    if (!reason || (!missed && d->n_before)) {
        buf_puts(out, "null");
        return;
    }
    put_string_member(out, "{\"cache_miss_reason\":{\"type\":", reason);
    if (strstr(reason, "_changed")) buf_printf(out, ",\"cache_missed_input_tokens\":%zu", missed);
    buf_puts(out, "}}");
}
