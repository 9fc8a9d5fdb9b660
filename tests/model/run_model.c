#include "run_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const char *golden_path(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("INCIPIT_GOLDEN"), name);
    return path;
}

model *open_golden(const char *name, model_opts opts) {
    icp_error err = {0};
    gguf *g;
    model *m;
    const char *path = name[0] == '/' ? name : golden_path(name);
    if (gguf_open(path, &g, &err) < 0) fail_msg("%s", err.text);
    if (model_open(g, &opts, &m, &err) < 0) fail_msg("%s: %s", path, err.text);
    gguf_close(&g);
    assert_int_equal(model_reserve(m, 512, 512), 0);
    return m;
}

bytes read_bytes(const char *name) {
    enum { MOST = 4 << 20 };
    char file[128];
    snprintf(file, sizeof file, "models/%s.gguf", name);
    FILE *f = fopen(golden_path(file), "rb");
    bytes b = {.data = malloc(MOST)};
    if (!f) fail_msg("%s is not there", file);
    b.len = fread(b.data, 1, MOST, f);
    fclose(f);
    return b;
}

gguf *open_bytes(bytes b) {
    char path[64];
    icp_error err = {0};
    gguf *g;
    int fd = memfd_create("model", 0);
    assert_int_equal(write(fd, b.data, b.len), b.len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (gguf_open(path, &g, &err) < 0) fail_msg("%s", err.text);
    close(fd);
    return g;
}

unsigned char *find_bytes(bytes b, const char *text) {
    unsigned char *at = memmem(b.data, b.len, text, strlen(text));
    if (!at) fail_msg("the file has no %s", text);
    return at;
}

void set_number(bytes b, const char *key, const void *value) {
    memcpy(find_bytes(b, key) + strlen(key) + 4, value, 4); /* after the value's kind */
}

json_object *read_json(const char *name) {
    json_object *o = json_object_from_file(golden_path(name));
    if (!o) fail_msg("%s: %s", name, json_util_get_last_err());
    return o;
}

float *read_floats(const char *name, size_t n) {
    float *out = malloc(n * sizeof *out);
    FILE *f = fopen(golden_path(name), "rb");
    if (!f || fread(out, sizeof *out, n, f) != n) fail_msg("cannot read %s", name);
    fclose(f);
    return out;
}

void sequence_init(sequence *s, model *m, size_t max_tokens) {
    size_t size = model_get_info(m)->page_size;
    *s = (sequence){.m = m, .n_pages = (max_tokens + KERN_PAGE - 1) / KERN_PAGE};
    s->state = aligned_alloc(64, model_get_info(m)->state_size / 64 * 64 + 64);
    memset(s->state, 0xff, model_get_info(m)->state_size);
    s->pages = malloc(s->n_pages * sizeof *s->pages);
    for (size_t i = 0; i < s->n_pages; i++) {
        s->pages[i] = aligned_alloc(64, size ? size : 64);
        memset(s->pages[i], 0xff, size); /* NaN: what was not written must not be read */
    }
}

void sequence_fini(sequence *s) {
    for (size_t i = 0; i < s->n_pages; i++) free(s->pages[i]);
    free(s->pages);
    free(s->state);
}

void sequence_extend(sequence *s, const int32_t *ids, size_t n, size_t chunk, float *logits) {
    size_t n_out = model_get_info(s->m)->n_out;
    for (size_t at = 0; at < n; at += chunk) {
        int now = (int)MIN(chunk, n - at);
        model_span span = {.tokens = ids + at,
                           .n_tokens = now,
                           .pos = s->len,
                           .pages = s->pages,
                           .state = s->state,
                           .n_logits = logits ? now : 0,
                           .scales = s->scales,
                           .second = s->second};
        model_forward(s->m, &span, 1, logits ? logits + at * n_out : NULL);
        s->len += (size_t)now;
    }
}
