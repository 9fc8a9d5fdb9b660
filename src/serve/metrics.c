/* GET /metrics: counters under the names that dashboards for vLLM look for, in the text exposition
 * format 0.0.4 of Prometheus. Prefix cache counters count tokens. */
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
    buf_fini(&text);
}

void metrics_reply(call *c) {
    icp_stats stats;
    icp_engine_get_stats(c->server->engine, &stats);
    metrics_write(&c->reply.body, &stats, c->server->name);
    c->reply.type = "text/plain; version=0.0.4; charset=utf-8";
    c->reply.status = 200;
}
