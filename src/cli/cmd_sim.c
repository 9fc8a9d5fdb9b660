/* sim: what a cache of some size and policy would have saved on a trace of requests. */
#include "cli.h"
#include "sim.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_SIZES = 16,
    MAX_POLICIES = 8,
    WIDTH = 760,
    HEIGHT = 420,
    LEFT = 56,
    BOTTOM = 48,
    TOP = 40,
    RIGHT = 110
};

typedef struct study {
    trace t;
    double percent[MAX_SIZES]; /* of the unique blocks */
    int n_sizes;
    int policy[MAX_POLICIES];
    int n_policies;
    replay_opts base;
    replay_result result[MAX_POLICIES][MAX_SIZES], all; /* all: a cache without a bound */
    double bound[MAX_SIZES];                            /* share of blocks that MIN finds */
} study;

static int parse_sizes(study *s, const char *list, icp_error *err) {
    for (const char *at = list; *at;) {
        char *end;
        double percent = strtod(at, &end);
        if (end == at || !(percent > 0 && percent <= 100) || s->n_sizes == MAX_SIZES ||
            (*end && *end != ','))
            return error_set(err, ICP_EINVALID, "--sizes takes up to %d percentages, like 1,5,10",
                             MAX_SIZES);
        s->percent[s->n_sizes++] = percent;
        at = *end ? end + 1 : end;
    }
    return 0;
}

static int parse_policies(study *s, const char *list, icp_error *err) {
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        int found = -1;
        for (int i = 0; cache_policy_name(i); i++)
            if (strlen(cache_policy_name(i)) == len && !memcmp(cache_policy_name(i), at, len))
                found = i;
        if (found < 0 || s->n_policies == MAX_POLICIES)
            return error_set(err, ICP_EINVALID,
                             "--policy takes names out of hazard, arc, lru, fifo, lfu, cost");
        s->policy[s->n_policies++] = found;
        at += len + (at[len] == ',');
    }
    return 0;
}

static double share(const replay_result *r) {
    return r->n_blocks ? 100.0 * (double)r->n_hits / (double)r->n_blocks : 0;
}

static int run(study *s, icp_error *err) {
    replay_opts o = s->base;
    o.capacity = SIZE_MAX;
    TRY(replay(&s->t, &o, &s->all, err));
    for (int i = 0; i < s->n_sizes; i++) {
        o.capacity = (size_t)((double)s->t.n_unique * s->percent[i] / 100);
        if (o.capacity < 16)
            return error_set(err, ICP_EINVALID, "%g %% of the blocks are fewer than 16",
                             s->percent[i]);
        s->bound[i] = 100.0 * (double)replay_bound(&s->t, o.capacity) / (double)s->t.n_blocks;
        for (int p = 0; p < s->n_policies; p++) {
            o.policy = (enum cache_policy)s->policy[p];
            TRY(replay(&s->t, &o, &s->result[p][i], err));
        }
    }
    return 0;
}

/* ---- output ---------------------------------------------------------------------------------- */

static void print_table(const study *s) {
    printf("%zu requests, %zu blocks of %d tokens, %zu of them unique; a cache without a bound "
           "finds %.1f %%\n"
           "blocks found, in %%, by cache size in %% of the unique blocks\n%-8s",
           s->t.n_requests, s->t.n_blocks, s->t.block, s->t.n_unique, share(&s->all), "");
    for (int i = 0; i < s->n_sizes; i++) printf("%8g", s->percent[i]);
    for (int p = 0; p < s->n_policies; p++) {
        printf("\n%-8s", cache_policy_name(s->policy[p]));
        for (int i = 0; i < s->n_sizes; i++) printf("%8.2f", share(&s->result[p][i]));
    }
    printf("\n%-8s", "limit");
    for (int i = 0; i < s->n_sizes; i++) printf("%8.2f", s->bound[i]);
    printf("\n");
    if (s->base.prefill <= 0) return;
    printf("seconds to the first token (median / 90 %% / 99 %%), one server that prefills %g "
           "tokens/s\n",
           s->base.prefill);
    for (int p = 0; p < s->n_policies; p++)
        for (int i = 0; i < s->n_sizes; i++) {
            const replay_result *r = &s->result[p][i];
            printf("%-8s%8g %%%12.2f%12.2f%12.2f\n", cache_policy_name(s->policy[p]), s->percent[i],
                   r->p50, r->p90, r->p99);
        }
}

static void print_json(const study *s) {
    printf("{\"requests\": %zu, \"blocks\": %zu, \"block\": %d, \"unique\": %zu, \"unbounded\": "
           "%.4f, \"results\": [",
           s->t.n_requests, s->t.n_blocks, s->t.block, s->t.n_unique, share(&s->all));
    for (int i = 0; i < s->n_sizes; i++)
        for (int p = 0; p < s->n_policies; p++) {
            const replay_result *r = &s->result[p][i];
            printf("%s{\"policy\": \"%s\", \"size\": %g, \"found\": %.4f, \"limit\": %.4f, "
                   "\"ttft\": [%.4f, %.4f, %.4f]}",
                   i + p ? ", " : "", cache_policy_name(s->policy[p]), s->percent[i], share(r),
                   s->bound[i], r->p50, r->p90, r->p99);
        }
    printf("]}\n");
}

static double x_of(const study *s, int i) {
    return LEFT + (s->n_sizes > 1 ? (double)i / (s->n_sizes - 1) : 0.5) * (WIDTH - LEFT - RIGHT);
}

static double y_of(double percent) {
    return HEIGHT - BOTTOM - percent / 100 * (HEIGHT - BOTTOM - TOP);
}

static void draw_line(FILE *f, const study *s, const double *y, const char *name,
                      const char *colour, int dashed) {
    fprintf(f, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", colour,
            dashed ? " stroke-dasharray=\"6 4\"" : "");
    for (int i = 0; i < s->n_sizes; i++) fprintf(f, "%.1f,%.1f ", x_of(s, i), y_of(y[i]));
    fprintf(f, "\"/>\n<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%s</text>\n",
            x_of(s, s->n_sizes - 1) + 8, y_of(y[s->n_sizes - 1]) + 4, colour, name);
}

/* Blocks found against the size of the cache: a line for each policy, dashed for the limit. */
static int draw(const study *s, const char *path, icp_error *err) {
    static const char *const colours[] = {"#0b6e4f", "#2563eb", "#b45309",
                                          "#9333ea", "#be123c", "#0f766e"};
    FILE *f = fopen(path, "we");
    if (!f) return error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" "
            "font-size=\"13\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text x=\"%d\" y=\"24\" font-size=\"15\">blocks found (%%) by cache size (%% of "
            "unique blocks)</text>\n",
            WIDTH, HEIGHT, LEFT);
    for (int y = 0; y <= 100; y += 20)
        fprintf(f,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%d</text>\n",
                LEFT, WIDTH - RIGHT, y_of(y), y_of(y), LEFT - 8, y_of(y) + 4, y);
    for (int i = 0; i < s->n_sizes; i++)
        fprintf(f, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", x_of(s, i),
                HEIGHT - BOTTOM + 20, s->percent[i]);
    for (int p = 0; p < s->n_policies; p++) {
        double y[MAX_SIZES];
        for (int i = 0; i < s->n_sizes; i++) y[i] = share(&s->result[p][i]);
        draw_line(f, s, y, cache_policy_name(s->policy[p]), colours[p % (int)COUNT_OF(colours)], 0);
    }
    draw_line(f, s, s->bound, "limit", "#555", 1);
    fprintf(f, "</svg>\n");
    return fclose(f) ? error_set(err, ICP_EIO, "%s: %s", path, strerror(errno)) : 0;
}

int cmd_sim(int argc, char **argv) {
    char **operands;
    int n_operands, block = 0;
    study s = {.base = {.deep = 4096}};
    const char *sizes = "1,2,5,10,20,50", *policies = "hazard,arc,lru,fifo,lfu,cost", *svg = NULL;
    float prefill = 0;
    bool json = false;
    const cli_option options[] = {
        {0, "sizes", "LIST", "cache sizes in % of the unique blocks (1,2,5,10,20,50)", OPTION_TEXT,
         &sizes, 0, 0},
        {0, "policy", "LIST", "out of hazard, arc, lru, fifo, lfu, cost (all)", OPTION_TEXT,
         &policies, 0, 0},
        {0, "block", "N", "tokens of a block of the trace (guessed)", OPTION_INT, &block, 1, 65536},
        {0, "unit", "N", "tokens that are found or not as one (a block)", OPTION_INT, &s.base.unit,
         1, 65536},
        {0, "prefill", "N", "tokens/s of a machine: also times, with its queue", OPTION_FLOAT,
         &prefill, 0, 1e9},
        {0, "json", NULL, "print JSON", OPTION_FLAG, &json, 0, 0},
        {0, "svg", "FILE", "draw a picture", OPTION_TEXT, &svg, 0, 0}};
    cli_parse(
        &(cli_usage){
            "sim", "TRACE",
            "Replays a trace of requests through the cache and the scheduler, without a "
            "model: what sizes and\npolicies would have found. A trace has a JSON object a "
            "line: timestamp, input_length, output_length,\nhash_ids (Mooncake's format).",
            "example: incipit sim --svg hits.svg conversation.jsonl", options, COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    icp_error err = {0};
    if (n_operands != 1) return cli_say("sim takes one trace; try: incipit sim --help"), EXIT_USAGE;
    s.base.prefill = (double)prefill;
    int rc = parse_sizes(&s, sizes, &err);
    if (rc == 0) rc = parse_policies(&s, policies, &err);
    if (rc == 0) rc = trace_read(operands[0], block, &s.t, &err);
    if (rc == 0) rc = run(&s, &err);
    if (rc == 0) (json ? print_json : print_table)(&s);
    if (rc == 0 && svg) rc = draw(&s, svg, &err);
    trace_fini(&s.t);
    return rc < 0 ? cli_fail(&err) : EXIT_DONE;
}
