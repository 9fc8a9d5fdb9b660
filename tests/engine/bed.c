#include "bed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine_internal.h"

static tokenizer *open_vocab(void) {
    static char bytes[FAKE_VOCAB][16];
    static text_str tokens[FAKE_VOCAB];
    static int32_t types[FAKE_VOCAB];
    static float scores[FAKE_VOCAB];
    static const char *const special[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < FAKE_VOCAB; i++) {
        types[i] = i == 0          ? TOKEN_UNKNOWN
                   : i < BED_BYTES ? TOKEN_CONTROL
                   : i < BED_WORDS ? TOKEN_BYTE
                                   : TOKEN_NORMAL;
        if (i < BED_BYTES)
            snprintf(bytes[i], sizeof bytes[i], "%s", special[i]);
        else if (i < BED_WORDS)
            snprintf(bytes[i], sizeof bytes[i], "<0x%02X>", i - BED_BYTES);
        else
            snprintf(bytes[i], sizeof bytes[i], "\xE2\x96\x81w%d", i - BED_WORDS);
        tokens[i] = (text_str){bytes[i], strlen(bytes[i])};
        scores[i] = (float)-i;
    }
    text_vocab vocab = {.model = {"llama", 5},
                        .n_tokens = FAKE_VOCAB,
                        .tokens = tokens,
                        .scores = scores,
                        .types = types,
                        .bos = BED_BOS,
                        .eos = BED_EOS,
                        .eot = -1,
                        .unk = 0,
                        .add_bos = 1,
                        .add_eos = 0,
                        .add_space_prefix = 0};
    tokenizer *tok;
    icp_error err = {0};
    if (tokenizer_open(&vocab, &tok, &err) < 0) fail_msg("%s", err.text);
    return tok;
}

static void open_engine(bed *b, engine_opts opts) {
    icp_error err = {0};
    b->tok = open_vocab();
    assert_int_equal(pool_open(2, &b->pool), 0);
    opts.model = b->model;
    opts.tok = b->tok;
    opts.pool = b->pool;
    if (!opts.cache_limit) opts.cache_limit = 4 << 20;
    if (engine_open(&opts, &b->engine, &err) < 0) fail_msg("%s", err.text);
}

void bed_open(bed *b, engine_opts opts) {
    bed_open_carrying(b, opts, 0);
}

void bed_open_carrying(bed *b, engine_opts opts, size_t state_size) {
    b->model = fake_model_open(state_size);
    open_engine(b, opts);
}

void bed_open_embedder(bed *b, engine_opts opts, bool causal) {
    b->model = fake_model_open(0);
    fake_model_embed(b->model, causal);
    open_engine(b, opts);
}

void bed_open_wide(bed *b, engine_opts opts, size_t page_size) {
    b->model = fake_model_open(0);
    fake_model_widen(b->model, page_size);
    open_engine(b, opts);
}

void bed_close(bed *b) {
    engine_close(&b->engine);
    pool_close(&b->pool);
    tokenizer_close(&b->tok);
    fake_model_close(&b->model);
}

request *bed_submit(bed *b, const icp_request_opts *opts) {
    request *r;
    icp_error err = {0};
    if (engine_submit(b->engine, opts, &r, &err) < 0) fail_msg("%s", err.text);
    return r;
}

static void take_event(result *r, const icp_event *e) {
    assert_in_range(e->choice, 0, r->n - 1);
    outcome *o = &r->choice[e->choice];
    switch (e->kind) {
    case ICP_EVENT_PROMPT:
    case ICP_EVENT_PROGRESS:
        break;
    case ICP_EVENT_TOKEN:
        assert_false(o->finished);
        assert_int_equal(e->position, o->n);
        assert_true(o->n < BED_MOST);
        if (e->choice == 0) r->early = e->usage;
        o->token[o->n++] = e->token;
        buf_put(&o->text, e->text, e->text_len);
        break;
    case ICP_EVENT_FINISH:
        assert_false(o->finished);
        o->finished = true;
        o->finish = e->finish;
        o->stop_index = e->stop_index;
        buf_put(&o->text, e->text, e->text_len);
        break;
    case ICP_EVENT_DONE:
        r->error = e->error;
        r->usage = e->usage;
    }
}

result bed_finish(request **rp, int n) {
    result r = {.choice = calloc((size_t)n, sizeof *r.choice), .n = n};
    icp_event e = {.kind = ICP_EVENT_TOKEN};
    while (e.kind != ICP_EVENT_DONE) {
        assert_true(request_wait(*rp, -1));
        while (request_next(*rp, &e)) take_event(&r, &e);
    }
    assert_false(request_wait(*rp, -1)); /* nothing comes after DONE, and nobody waits for it */
    size_t n_output = 0;
    for (int i = 0; i < n; i++) {
        n_output += (size_t)r.choice[i].n;
        if (!r.error) assert_true(r.choice[i].finished);
        buf_put(&r.choice[i].text, "", 0); /* NUL-terminates */
    }
    assert_int_equal(r.usage.completion_tokens, n_output);
    assert_true(r.usage.cached_tokens < r.usage.prompt_tokens);
    if (r.choice[0].n > 0) {
        assert_int_equal(r.early.prompt_tokens, r.usage.prompt_tokens);
        assert_int_equal(r.early.cached_tokens, r.usage.cached_tokens);
    }
    request_free(rp);
    return r;
}

result bed_run(bed *b, const icp_request_opts *opts) {
    request *r = bed_submit(b, opts);
    return bed_finish(&r, opts->n);
}

void result_fini(result *r) {
    for (int i = 0; i < r->n; i++) buf_fini(&r->choice[i].text);
    free(r->choice);
}

void bed_prompt(int32_t *tokens, size_t n, size_t n_shared, unsigned seed) {
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        if (i == n_shared) x = seed * 2654435761u + 12345;
        x = x * 1664525 + 1013904223;
        tokens[i] = BED_WORDS + (int32_t)((x >> 16) % (FAKE_VOCAB - BED_WORDS));
    }
}

icp_request_opts bed_greedy(const int32_t *prompt, size_t n, int n_tokens) {
    icp_request_opts o;
    icp_request_opts_init(&o);
    o.prompt = prompt;
    o.n_prompt = n;
    o.max_tokens = n_tokens;
    o.temperature = 0;
    o.ignore_eos = true;
    return o;
}

void bed_expect(const icp_request_opts *opts, int choice, outcome *out) {
    int32_t tokens[FAKE_CTX];
    float row[FAKE_VOCAB];
    static const int32_t ends[] = {BED_EOS};
    sampler *s;
    memcpy(tokens, opts->prompt, opts->n_prompt * sizeof *tokens);
    assert_int_equal(sampler_open(FAKE_VOCAB, 1, ends, 1, &s), 0);
    *out = (outcome){0};
    while (out->n < opts->max_tokens) {
        size_t n = opts->n_prompt + (size_t)out->n;
        fake_logits(tokens, n, row);
        sample_job job = {.row = row,
                          .opts = opts,
                          .tokens = tokens,
                          .n_prompt = opts->n_prompt,
                          .n_tokens = n,
                          .choice = choice,
                          .known = -1,
                          .ban_ends = out->n < opts->min_tokens};
        sampler_run(s, &job, 0);
        out->token[out->n++] = tokens[n] = job.token;
        if (job.token == BED_EOS && !opts->ignore_eos) break;
    }
    sampler_close(&s);
}

void bed_assert_same(const outcome *a, const outcome *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->token, b->token, (size_t)a->n * sizeof a->token[0]);
}

void bed_run_herd(bed *b, int n, size_t n_shared, size_t n_tail) {
    enum { MOST = 8, LONGEST = 4096 };
    static int32_t prompt[MOST][LONGEST];
    static outcome want[MOST];
    size_t len = n_shared + n_tail;
    request *r[MOST];
    assert_true(n <= MOST && len <= LONGEST);
    fake_model_stop(b->model);
    for (int i = 0; i < n; i++) {
        bed_prompt(prompt[i], len, n_shared, (unsigned)i);
        icp_request_opts o = bed_greedy(prompt[i], len, 1);
        bed_expect(&o, 0, &want[i]);
        r[i] = bed_submit(b, &o);
    }
    fake_model_go(b->model);
    for (int i = 0; i < n; i++) {
        result got = bed_finish(&r[i], 1);
        bed_assert_same(&got.choice[0], &want[i]);
        result_fini(&got);
    }
}

void bed_open_starving(bed *b, size_t cache_limit) {
    engine_opts opts = {
        .model = b->model, .tok = b->tok, .pool = b->pool, .cache_limit = cache_limit};
    for (long n = 0;; n++) {
        engine *e = NULL;
        mem_fail_after(n);
        int rc = engine_open(&opts, &e, NULL);
        mem_fail_after(-1);
        engine_close(&e);
        if (rc == 0) break;
        assert_int_equal(rc, ICP_ENOMEM);
    }
}
