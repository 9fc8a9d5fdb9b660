#include "json.h"
#include "sim.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- ids to small numbers: open addressing ----------------------------------------------------
 */

typedef struct names {
    uint64_t *id;
    int32_t *number; /* -1: free */
    size_t cap, n;   /* cap: a power of two */
} names;

static size_t seek(const names *t, uint64_t id) {
    size_t at = (size_t)(id * 0x9E3779B97F4A7C15u >> 20) & (t->cap - 1);
    while (t->number[at] >= 0 && t->id[at] != id) at = (at + 1) & (t->cap - 1);
    return at;
}

static int grow(names *t) {
    names more = {.cap = t->cap ? 2 * t->cap : 1024, .n = t->n};
    more.id = mem_alloc(more.cap * sizeof *more.id);
    more.number = mem_alloc(more.cap * sizeof *more.number);
    if (!more.id || !more.number) {
        mem_free(more.id);
        mem_free(more.number);
        return ICP_ENOMEM;
    }
    memset(more.number, 0xff, more.cap * sizeof *more.number);
    for (size_t i = 0; i < t->cap; i++) {
        if (t->number[i] < 0) continue;
        size_t at = seek(&more, t->id[i]);
        more.id[at] = t->id[i];
        more.number[at] = t->number[i];
    }
    mem_free(t->id);
    mem_free(t->number);
    *t = more;
    return 0;
}

static int number_of(names *t, uint64_t id, int32_t *out) {
    if (t->n + 1 > t->cap / 2) TRY(grow(t));
    size_t at = seek(t, id);
    if (t->number[at] < 0) {
        t->id[at] = id;
        t->number[at] = (int32_t)t->n++;
    }
    *out = t->number[at];
    return 0;
}

/* ---- lines ----------------------------------------------------------------------------------- */

typedef struct reader {
    trace *t;
    names names;
    size_t request_cap, block_cap;
} reader;

static int make_room(void **array, size_t *cap, size_t need, size_t size) {
    if (need <= *cap) return 0;
    size_t more = MAX(need, 2 * *cap + 1024);
    void *grown = mem_resize(*array, more, size);
    if (!grown) return ICP_ENOMEM;
    *array = grown;
    *cap = more;
    return 0;
}

static bool get_count(json_object *line, const char *key, int *out) {
    json_object *value = json_object_object_get(line, key);
    int64_t n = json_object_get_int64(value);
    *out = (int)n;
    return json_object_is_type(value, json_type_int) && n >= 0 && n < INT32_MAX;
}

/* NULL, or what is wrong with the line. */
static const char *check_line(json_object *line, trace_request *r) {
    json_object *time = json_object_object_get(line, "timestamp");
    if (!json_object_is_type(line, json_type_object)) return "not a JSON object";
    if (!json_object_is_type(time, json_type_int) && !json_object_is_type(time, json_type_double))
        return "timestamp must be a number (milliseconds)";
    if (!get_count(line, "input_length", &r->n_input)) return "input_length must be a whole number";
    if (!get_count(line, "output_length", &r->n_output))
        return "output_length must be a whole number";
    if (!json_object_is_type(json_object_object_get(line, "hash_ids"), json_type_array))
        return "hash_ids must be an array";
    r->time = json_object_get_double(time) / 1000;
    json_object *block = json_object_object_get(line, "block");
    if (block && (!get_count(line, "block", &r->block) || r->block == 0))
        return "block must be a number of tokens";
    return NULL;
}

static int add_line(reader *in, json_object *line, const trace_request *r) {
    trace *t = in->t;
    json_object *ids = json_object_object_get(line, "hash_ids");
    size_t n = json_object_array_length(ids);
    if (r->block) t->block = r->block;
    TRY(make_room((void **)&t->requests, &in->request_cap, t->n_requests + 1, sizeof *t->requests));
    TRY(make_room((void **)&t->blocks, &in->block_cap, t->n_blocks + n, sizeof *t->blocks));
    trace_request *to = &t->requests[t->n_requests++];
    *to = *r;
    to->first = t->n_blocks;
    to->n_blocks = n;
    for (size_t i = 0; i < n; i++) {
        uint64_t id = (uint64_t)json_object_get_int64(json_object_array_get_idx(ids, i));
        TRY(number_of(&in->names, id, &t->blocks[t->n_blocks++]));
    }
    return 0;
}

static int read_lines(reader *in, const char *path, FILE *f, icp_error *err) {
    char *text = NULL;
    size_t cap = 0;
    int rc = 0;
    for (int number = 1; rc == 0 && getline(&text, &cap, f) > 0; number++) {
        trace_request r = {0};
        if (text[strspn(text, " \t\r\n")] == '\0') continue;
        json_object *line = json_read_whole(text, strlen(text));
        const char *wrong = check_line(line, &r);
        rc = wrong ? error_set(err, ICP_EFORMAT, "%s, line %d: %s", path, number, wrong)
                   : add_line(in, line, &r);
        json_object_put(line);
    }
    free(text);
    if (rc == ICP_ENOMEM) error_set(err, rc, "out of memory");
    return rc;
}

/* The size of a block: the smallest common number of tokens that fits every request. */
static int guess_block(const trace *t) {
    static const int sizes[] = {16, 32, 64, 128, 256, 512, 1024};
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        bool fits = true;
        for (size_t i = 0; fits && i < t->n_requests; i++) {
            int64_t n = (int64_t)t->requests[i].n_blocks, input = t->requests[i].n_input;
            fits = n * sizes[s] >= input - sizes[s] && (n - 1) * sizes[s] <= input;
        }
        if (fits) return sizes[s];
    }
    return CACHE_PAGE;
}

/* Of the same time in the order of lines, which is that of blocks. */
static int by_time(const void *a, const void *b) {
    const trace_request *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

int trace_read(const char *path, int block, trace *t, icp_error *err) {
    *t = (trace){0};
    FILE *f = fopen(path, "re");
    if (!f) return error_set(err, ICP_EIO, "%s: %s", path, strerror(errno));
    reader in = {.t = t};
    int rc = read_lines(&in, path, f, err);
    fclose(f);
    t->n_unique = in.names.n;
    mem_free(in.names.id);
    mem_free(in.names.number);
    if (rc == 0 && t->n_blocks == 0)
        rc = error_set(err, ICP_EFORMAT, "%s has no requests with whole blocks", path);
    if (rc < 0) {
        trace_fini(t);
        return rc;
    }
    if (block) t->block = block;
    if (!t->block) t->block = guess_block(t);
    qsort(t->requests, t->n_requests, sizeof *t->requests, by_time); /* a log notes ends */
    return 0;
}

void trace_fini(trace *t) {
    mem_free(t->requests);
    mem_free(t->blocks);
    *t = (trace){0};
}
