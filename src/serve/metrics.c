/* GET /metrics: counters under the names that dashboards for vLLM look for, in the text exposition
 * format 0.0.4 of Prometheus. Prefix cache counters count tokens. */
#include <stdio.h>
#include <string.h>

#include "serve_internal.h"

/* X(name, type, value, help) */
#define METRICS(X)                                                                                 \
    X("num_requests_running", "gauge", s->running, "Requests being computed.")                     \
    X("num_requests_waiting", "gauge", s->waiting, "Requests that wait for room.")                 \
    X("kv_cache_usage_perc", "gauge", page_share(s), "Share of KV pages in use, 0 to 1.")          \
    X("num_preemptions_total", "counter", s->preemptions, "Requests that gave up their pages.")    \
    X("prompt_tokens_total", "counter", s->prompt_tokens, "Prompt tokens, cached or computed.")    \
    X("prompt_tokens_cached_total", "counter", s->cached_tokens, "Prompt tokens from the cache.")  \
    X("generation_tokens_total", "counter", s->generation_tokens, "Tokens generated.")             \
    X("prefix_cache_queries_total", "counter", s->prompt_tokens, "Prompt tokens looked up.")       \
    X("prefix_cache_hits_total", "counter", s->cached_tokens, "Prompt tokens found.")

/* X(name, histogram, help) */
#define HISTOGRAMS(X)                                                                              \
    X("time_to_first_token_seconds", ttft, "From submission to the first token.")                  \
    X("inter_token_latency_seconds", tpot, "Between tokens of a completion.")                      \
    X("e2e_request_latency_seconds", e2e, "From submission to the end.")                           \
    X("request_queue_time_seconds", queue, "From submission to the first computation.")

/* X(name, type, value, help): what only this server has to tell; prefix incipit_. */
#define OWN_METRICS(X)                                                                             \
    X("memory_limit_bytes", "gauge", s->limit, "The limit for all but the model.")                 \
    X("pages", "gauge", s->pages, "Pages of the cache.")                                           \
    X("pages_in_use", "gauge", s->pages_used, "Pages of running requests and pins.")               \
    X("pages_cached", "gauge", s->pages_cached, "Pages that nobody uses and that can be found.")   \
    X("checkpoints", "gauge", s->checkpoints, "Kept states of recurrent and hybrid models.")       \
    X("checkpoint_pages", "gauge", s->checkpoint_pages, "Pages of these; cached, too.")            \
    X("hollow_pages", "gauge", s->hollow_pages, "Known pages without memory, behind a window.")    \
    X("pages_pinned", "gauge", s->pinned_pages, "Pages that pins hold, counted for each pin.")     \
    X("pins", "gauge", s->pins, "Pinned prompts.")                                                 \
    X("pins_yielded_total", "counter", s->pins_yielded, "Pins given up for a request to run.")     \
    X("stalls_total", "counter", s->stalls, "Answers that waited until their client read on.")     \
    X("tenants", "gauge", s->tenants, "Tenants known to the queue.")                               \
    X("evictions_total", "counter", s->evictions, "Pages that went to make room.")                 \
    X("expirations_total", "counter", s->expired, "Pages whose time to live was over.")            \
    X("page_copies_total", "counter", s->copies, "Partial pages that were copied.")                \
    X("page_adoptions_total", "counter", s->adoptions, "Partial pages that were taken over.")      \
    X("respelled_tokens_total", "counter", s->respelled, "Prompt tokens found by their bytes.")    \
    X("steps_total", "counter", s->steps, "Steps of the engine.")                                  \
    X("max_pause_seconds", "gauge", s->max_pause, "The bound on a step while others decode.")      \
    X("step_seconds", "gauge", s->step_s, "Measured: a step without prompt tokens.")               \
    X("prompt_token_seconds", "gauge", s->row_s, "Measured: each prompt token more in a step.")

static double page_share(const icp_stats *s) {
    return s->pages ? (double)s->pages_used / (double)s->pages : 0;
}

/* The label's value: backslash, quote and newline are escaped. */
static void put_label(buf *out, const char *name) {
    buf_puts(out, "model_name=\"");
    for (; *name; name++) {
        if (*name == '\n')
            buf_puts(out, "\\n");
        else if (*name == '\\' || *name == '"')
            buf_printf(out, "\\%c", *name);
        else
            buf_putc(out, *name);
    }
    buf_putc(out, '"');
}

static void put_head(buf *out, const char *name, const char *type, const char *help) {
    buf_printf(out, "# HELP vllm:%s %s\n# TYPE vllm:%s %s\n", name, help, name, type);
}

static void put_value(buf *out, const char *label, const char *name, double value) {
    buf_printf(out, "vllm:%s{%s} %.17g\n", name, label, value);
}

static void put_histogram(buf *out, const char *label, const char *name,
                          const struct icp_histogram *h) {
    static const double bounds[ICP_N_LATENCY] = ICP_LATENCY_BOUNDS;
    for (int i = 0; i < ICP_N_LATENCY; i++)
        buf_printf(out, "vllm:%s_bucket{%s,le=\"%g\"} %llu\n", name, label, bounds[i],
                   (unsigned long long)h->bucket[i]);
    unsigned long long count = h->bucket[ICP_N_LATENCY];
    buf_printf(out, "vllm:%s_bucket{%s,le=\"+Inf\"} %llu\n", name, label, count);
    buf_printf(out, "vllm:%s_sum{%s} %.17g\n", name, label, h->sum);
    buf_printf(out, "vllm:%s_count{%s} %llu\n", name, label, count);
}

static void put_labelled(buf *out, const char *label, const char *name, const char *key,
                         const char *value, uint64_t count) {
    buf_printf(out, "vllm:%s{%s,%s=\"%s\"} %llu\n", name, label, key, value,
               (unsigned long long)count);
}

static void put_own_head(buf *out, const char *name, const char *type, const char *help) {
    buf_printf(out, "# HELP incipit_%s %s\n# TYPE incipit_%s %s\n", name, help, name, type);
}

static void put_own(buf *out, const char *label, const char *name, const char *key,
                    const char *value, double number) {
    buf_printf(out, "incipit_%s{%s", name, label);
    if (key) buf_printf(out, ",%s=\"%s\"", key, value);
    buf_printf(out, "} %.17g\n", number);
}

static void write_own(buf *out, const icp_stats *s, const char *label) {
#define PUT_OWN(name, type, value, help)                                                           \
    put_own_head(out, name, type, help);                                                           \
    put_own(out, label, name, NULL, NULL, (double)(value));
    OWN_METRICS(PUT_OWN)
#undef PUT_OWN
    put_own_head(out, "memory_bytes", "gauge", "Bytes in use, by what they are for.");
    put_own(out, label, "memory_bytes", "for", "pages", (double)(s->pages * s->page_size));
    put_own(out, label, "memory_bytes", "for", "bookkeeping", (double)s->metadata);
    put_own(out, label, "memory_bytes", "for", "requests", (double)s->requests_size);
    put_own(out, label, "memory_bytes", "for", "arrays", (double)s->fixed);
    static const double scales[ICP_N_CURVE] = ICP_CURVE_SCALES;
    put_own_head(out, "hit_ratio_by_memory", "gauge",
                 "Share of prompt pages that so many times the pages would find; estimated.");
    for (int i = 0; s->curve.asked > 0 && i < ICP_N_CURVE; i++) {
        char times[16];
        snprintf(times, sizeof times, "%g", scales[i]);
        put_own(out, label, "hit_ratio_by_memory", "times", times, s->curve.found[i]);
    }
    put_own_head(out, "computed_prompt_tokens_total", "counter",
                 "Prompt tokens computed, and why.");
    for (int i = 0; i < ICP_N_MISSES; i++) {
        const char *why = icp_miss_name((enum icp_miss_reason)i);
        put_own(out, label, "computed_prompt_tokens_total", "reason", why[0] ? why : "last token",
                (double)s->missed[i]);
    }
}

void metrics_write(buf *out, const icp_stats *s, const char *model) {
    buf text = {0};
    put_label(&text, model);
    const char *label = text.data ? text.data : "";
    out->failed |= text.failed;
#define PUT_METRIC(name, type, value, help)                                                        \
    put_head(out, name, type, help);                                                               \
    put_value(out, label, name, (double)(value));
    METRICS(PUT_METRIC)
#undef PUT_METRIC
#define PUT_HISTOGRAM(name, histogram, help)                                                       \
    put_head(out, name, "histogram", help);                                                        \
    put_histogram(out, label, name, &s->histogram);
    HISTOGRAMS(PUT_HISTOGRAM)
#undef PUT_HISTOGRAM
    put_head(out, "prompt_tokens_by_source_total", "counter",
             "Prompt tokens by where they came from.");
    put_labelled(out, label, "prompt_tokens_by_source_total", "source", "local_compute",
                 s->computed_tokens);
    put_labelled(out, label, "prompt_tokens_by_source_total", "source", "local_cache_hit",
                 s->cached_tokens);
    put_head(out, "request_success_total", "counter", "Completions by how they ended.");
    put_labelled(out, label, "request_success_total", "finished_reason", "stop", s->finished_stop);
    put_labelled(out, label, "request_success_total", "finished_reason", "length",
                 s->finished_length);
    put_labelled(out, label, "request_success_total", "finished_reason", "abort", s->cancelled);
    put_labelled(out, label, "request_success_total", "finished_reason", "error", s->failed);
    put_head(out, "cache_config_info", "gauge", "The cache as configured.");
    buf_printf(out, "vllm:cache_config_info{%s,num_gpu_blocks=\"%zu\",block_bytes=\"%zu\"} 1\n",
               label, s->pages, s->page_size);
    write_own(out, s, label);
    buf_fini(&text);
}

void metrics_reply(call *c) {
    icp_stats stats;
    icp_engine_get_stats(c->on->engine, &stats);
    metrics_write(&c->reply.body, &stats, c->on->name);
    c->reply.type = "text/plain; version=0.0.4; charset=utf-8";
    c->reply.status = 200;
}
