/* Fuzzes the body of a request to ROUTE, over the whole library with the golden model MODEL: an
 * answer, a stream, or an error with a sentence. What does not end soon is left, as by a client. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "generation.h"
#include "json.h"
#include "store.h"

#define TEMPLATE                                                                                   \
    "{% for m in messages %}<s>{{ m.role }}:{{ m.content }}</s>{% endfor %}"                       \
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"

static void put_number(buf *out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) buf_putc(out, (char)(value >> 8 * i));
}

static void put_text(buf *out, const char *text, size_t len) {
    put_number(out, len, 8);
    buf_put(out, text, len);
}

static void put_entry(buf *out, const char *key, const char *value, size_t len) {
    put_text(out, key, strlen(key));
    put_number(out, 8, 4); /* a string */
    put_text(out, value, len);
}

/* The golden model with a chat template: two more entries of metadata behind the header, in all a
 * multiple of the alignment. */
static int open_file(void) {
    static char file[2 << 20], blanks[32];
    FILE *f = fopen(GOLDEN_DIR "/models/" MODEL ".gguf", "rb");
    must(f != NULL);
    size_t len = fread(file, 1, sizeof file, f);
    fclose(f);
    uint64_t n_entries;
    memcpy(&n_entries, file + 16, 8);
    buf out = {0};
    put_entry(&out, "tokenizer.chat_template", TEMPLATE, strlen(TEMPLATE));
    memset(blanks, ' ', sizeof blanks);
    size_t padding = -(out.len + 8 + 3 + 4 + 8) % 32;
    put_entry(&out, "pad", blanks, padding);
    int fd = memfd_create("model", MFD_CLOEXEC);
    n_entries += 2;
    memcpy(file + 16, &n_entries, 8);
    must(write(fd, file, 24) == 24 && write(fd, out.data, out.len) == (ssize_t)out.len);
    must(write(fd, file + 24, len - 24) == (ssize_t)len - 24);
    buf_fini(&out);
    return fd;
}

static server *open_server(void) {
    static const serve_opts opts = {.max_tokens = 24, .model = {.isa = "scalar", .n_threads = 1}};
    static server s = {.opts = &opts, .max_body = 1 << 20};
    const icp_engine_opts engine = {.cache_limit = 16 << 20};
    icp_error err = {0};
    char path[64];
    log_set_level(LOG_ERROR);
    snprintf(path, sizeof path, "/proc/self/fd/%d", open_file());
    s.only = served_new(path, "tiny", strlen("tiny"));
    must(s.only && served_load(s.only, &opts, &engine, &err) == 0);
    must(store_open(1 << 20, 3600, &s.store) == 0);
    s.ready = true;
    return &s;
}

static void must_be_json(const buf *text) {
    enum json_tokener_error why;
    json_object *value = NULL;
    size_t end;
    must(json_read(text->data, text->len, 200, &value, &why, &end) == 0);
    must(why == json_tokener_success && end == text->len);
    json_object_put(value);
}

static void check_reply(call *c) {
    reply *r = &c->reply;
    buf text = {0};
    if (r->is_error) {
        must(r->status >= 400 && r->status < 600 && r->status != 500 && r->message[0]);
        put_error(&text, r, c->errors, "req_fuzz");
        must_be_json(&text);
    } else {
        must(r->status == 200);
        must_be_json(&r->body);
    }
    buf_fini(&text);
}

/* Follows a generation for a while. */
static void follow(call *c) {
    enum { ROUNDS = 200 };
    char out[4096];
    generation *g = c->generation;
    for (int i = 0; i < ROUNDS && !generation_done(g); i++) {
        generation_pump(g);
        while (generation_read(g, out, sizeof out) > 0) continue;
        if (!generation_done(g)) usleep(200);
    }
    if (!generation_done(g)) return;
    generation_pump(g);
    if (generation_streams(g)) {
        while (generation_read(g, out, sizeof out) > 0) continue;
        must(generation_read(g, out, sizeof out) == -1);
    } else {
        generation_reply(g, &c->reply);
        check_reply(c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static server *s;
    if (!s) s = open_server();
    conn on = {.fd = -1};
    call *c = call_new(s, &on, NULL);
    reply none = {0};
    must(c != NULL);
    c->route = route_find("POST", ROUTE, &none);
    c->method = mem_strdup("POST");
    c->path = mem_strdup(ROUTE);
    must(c->route && c->method && c->path);
    buf_put(&c->body, data, size);
    c->state = CALL_WORKING;
    call_work(c);
    if (c->generation)
        follow(c);
    else
        check_reply(c);
    call_free(c);
    return 0;
}
