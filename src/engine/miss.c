/* Why prompt tokens are computed, and how some need not be. */
#include <string.h>

#include "engine_internal.h"

enum { NAMESPACES = 64 }; /* of a tenant that are asked whether they have it */

const char *icp_miss_name(enum icp_miss_reason reason) {
    static const char *const names[] = {
#define NAME(name, text, meaning) text,
        ICP_MISSES(NAME)
#undef NAME
    };
    return names[reason];
}

static enum icp_miss_reason reason_of(enum cache_loss loss) {
    switch (loss) {
    case CACHE_LOSS_ROOM:
        return ICP_MISS_EVICTED;
    case CACHE_LOSS_QUOTA:
        return ICP_MISS_QUOTA;
    case CACHE_LOSS_EXPIRED:
        return ICP_MISS_EXPIRED;
    case CACHE_LOSS_DROPPED:
        return ICP_MISS_DROPPED;
    case CACHE_LOSS_UNSTORED:
        return ICP_MISS_UNSTORED;
    case CACHE_LOSS_WINDOW:
        return ICP_MISS_WINDOW;
    case CACHE_LOSS_NONE:
        break;
    }
    return ICP_MISS_NEW;
}

static int copy_tokens(int32_t *to, const int32_t *from, size_t n) {
    n = MIN(n, ICP_MISS_TOKENS);
    memcpy(to, from, n * sizeof *to);
    return (int)n;
}

/* A public prefix counts as cached text as well: how it goes on where the prompt leaves it. */
static void compare_publics(const engine *e, const request *r, icp_miss *out) {
    const public_prefix *p = NULL;
    const int32_t *tokens = r->opts.prompt;
    size_t n = r->opts.n_prompt, same = public_common(e, r, &p);
    if (!p || same == p->n || same < out->position || same == 0 || same == n) return;
    out->reason = ICP_MISS_DIFFERENT;
    out->n_cached = copy_tokens(out->cached, p->tokens + same, p->n - same);
    out->n_own = copy_tokens(out->own, tokens + same, n - same);
    out->position = same;
}

/* Another namespace of the tenant that holds more of the prompt. */
static bool look_elsewhere(const engine *e, const request *r, size_t limit, icp_miss *out) {
    const void *key = NULL;
    out->elsewhere = cache_probe_others(e->cache, r->space, r->opts.prompt,
                                        MIN(r->opts.n_prompt, limit), NAMESPACES, &key);
    if (out->elsewhere <= out->position) return false;
    out->reason = tenant_same_adapters(key, r) ? ICP_MISS_NAMESPACE : ICP_MISS_ADAPTERS;
    return true;
}

/* Of tokens whose keys and values are there up to `found`, so many can be used: is it for lack of a
 * checkpoint? What stands after the last page edge can never be. */
static bool lacks_state(size_t usable, size_t found, size_t n) {
    return usable < found - found % CACHE_PAGE || (usable < found && found + 1 >= n);
}

void miss_explain(engine *e, const request *r, bool others, icp_miss *out) {
    const int32_t *tokens = r->opts.prompt;
    size_t n = r->opts.n_prompt, limit = r->seq[0].hit_limit;
    *out = (icp_miss){.reason = ICP_MISS_OFF, .n_missed = n};
    if (!r->space) return;
    cache_miss m;
    cache_explain(e->cache, r->space, tokens, n, &m);
    bool bounded = e->states || e->window_pages;
    size_t usable = bounded ? cache_probe(e->cache, r->space, tokens, limit) : MIN(m.len, limit);
    if (!e->states && usable < MIN(m.len, limit)) /* all of it would be served */
        cache_explain(e->cache, r->space, tokens, limit, &m);
    size_t found = MIN(m.len, limit);
    bool no_state = e->states && lacks_state(usable, found, n);
    out->position = no_state ? usable : found;
    out->n_missed = n - usable;
    if (usable + 1 >= n) {
        out->reason = ICP_MISS_NONE;
        return;
    }
    out->n_own = copy_tokens(out->own, tokens + out->position, n - out->position);
    if (no_state || m.len >= limit) {
        out->reason = no_state ? ICP_MISS_STATE : ICP_MISS_LIMITED;
        return;
    }
    out->reason = reason_of(m.loss);
    if (m.loss != CACHE_LOSS_NONE) {
        cache_stats s;
        cache_get_stats(e->cache, &s);
        out->ago = clock_now() - m.lost_at;
        out->lost_to = m.lost_len;
        out->pages_in_use = m.lost_pinned;
        out->pages = s.n_pages;
        return;
    }
    if (m.n_other > 0 && m.len > 0) {
        out->reason = ICP_MISS_DIFFERENT;
        out->n_cached = copy_tokens(out->cached, m.other, (size_t)m.n_other);
    }
    if (!others || !look_elsewhere(e, r, limit, out)) compare_publics(e, r, out);
}

/* ---- another spelling ------------------------------------------------------------------------ */

static const char *spell(const void *arg, int32_t token, size_t *len) {
    const tokenizer *t = arg;
    if ((size_t)token >= tokenizer_n(t)) return NULL;
    enum token_type type = tokenizer_type(t, token);
    if (type != TOKEN_NORMAL && type != TOKEN_BYTE) return NULL;
    text_str text = tokenizer_bytes(t, token);
    *len = text.len;
    return text.data;
}

/* Logits are wanted by position, and max_hit counts tokens: then the prompt stays as it is. */
static bool may_respell(const request *r) {
    const icp_request_opts *o = &r->opts;
    return o->from_text && r->space && !o->on_logits && !o->prompt_logprobs &&
           o->max_hit == SIZE_MAX;
}

void miss_respell(engine *e, request *r) {
    if (!may_respell(r)) return;
    const icp_request_opts *o = &r->opts;
    cache_spelling spelling = {spell, e->tok};
    size_t room = MIN(e->limits.n_ctx, 2 * o->n_prompt + CACHE_PAGE), n_out, n_in;
    if (!ledger_take(e->ledger, room * sizeof(int32_t), LEDGER_RUN)) return;
    int32_t *out = mem_alloc(room * sizeof *out);
    if (out && cache_respell(e->cache, r->space, &spelling, o->prompt, o->n_prompt, out, room,
                             &n_out, &n_in)) {
        size_t rest = o->n_prompt - n_in, same = 0;
        while (same < n_out && out[same] == o->prompt[same]) same++;
        if (rest <= room - n_out) {
            memcpy(out + n_out, o->prompt + n_in, rest * sizeof *out);
            if (request_set_prompt(r, out, n_out + rest)) {
                request_move_marks(r, same, n_in, n_out);
                r->usage.respelled = n_in - same;
            }
        }
    }
    mem_free(out);
    ledger_give(e->ledger, room * sizeof(int32_t));
}
