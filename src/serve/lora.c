/* LoRA adapters as llama-server has them: `lora` of a body, and the scales of all requests that say
 * nothing.
 * https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
 *
 *   [{"id": 0, "scale": 0.5}, …]     those that are not listed count 0 */
#include <string.h>

#include "generation.h"

enum { MAX_SCALE = 1000 };

int lora_open(served *m) {
    const icp_adapter *adapters = icp_model_get_adapters(m->model, &m->n_lora);
    m->lora = mem_zero(m->n_lora + 1, sizeof *m->lora);
    if (!m->lora) return ICP_ENOMEM;
    for (size_t i = 0; i < m->n_lora; i++) {
        m->lora[i] = adapters[i].scale;
        log_line(LOG_INFO, "adapter %zu: %s, scale %g", i, adapters[i].path,
                 (double)adapters[i].scale);
    }
    return 0;
}

/* A list as above becomes n scales. */
static bool read_scales(json_object *list, float *scales, size_t n, reply *error) {
    struct entry {
        int id;
        float scale;
    };
    static const field fields[] = {
        {"id", FIELD_INT, offsetof(struct entry, id), 0, 1e6},
        {"scale", FIELD_FLOAT, offsetof(struct entry, scale), -MAX_SCALE, MAX_SCALE},
    };
    memset(scales, 0, n * sizeof *scales);
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        json_object *item = json_object_array_get_idx(list, i);
        struct entry e = {.id = -1};
        if (!json_object_is_type(item, json_type_object) || !field_get(item, "id"))
            return reply_error(error, 400, "invalid_value", "lora",
                               "Invalid value for 'lora': expected objects with 'id' and 'scale'."),
                   false;
        if (!fields_read(item, "lora.", fields, COUNT_OF(fields), &e, error)) return false;
        if ((size_t)e.id >= n)
            return reply_error(error, 400, "invalid_value", "lora.id",
                               "Invalid value for 'lora.id': there is no adapter %d; %zu are "
                               "loaded.",
                               e.id, n),
                   false;
        scales[e.id] = e.scale;
    }
    return true;
}

bool lora_fields_read(generate_opts *o, json_object *body, served *m, reply *error) {
    json_object *list = field_of_type(body, "lora", json_type_array, error);
    if (error->status) return false;
    if (m->n_lora == 0 && !list) return true;
    o->lora = mem_alloc((m->n_lora + 1) * sizeof *o->lora);
    if (!o->lora) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    o->request.adapter_scales = o->lora;
    o->request.n_adapter_scales = m->n_lora;
    if (list) return read_scales(list, o->lora, m->n_lora, error);
    pthread_mutex_lock(&m->lora_lock);
    memcpy(o->lora, m->lora, m->n_lora * sizeof *o->lora);
    pthread_mutex_unlock(&m->lora_lock);
    return true;
}

/* ---- /lora-adapters -------------------------------------------------------------------------- */

void lora_reply(call *c) {
    served *m = c->on;
    buf *out = &c->reply.body;
    size_t n;
    const icp_adapter *adapters = icp_model_get_adapters(m->model, &n);
    pthread_mutex_lock(&m->lora_lock);
    buf_putc(out, '[');
    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(adapters[i].path, '/');
        buf_printf(out, "%s{\"id\":%zu", i ? "," : "", i);
        put_string_member(out, ",\"path\":", slash ? slash + 1 : adapters[i].path);
        buf_printf(out, ",\"scale\":%.9g,\"task_name\":\"\",\"prompt_prefix\":\"\"}",
                   (double)m->lora[i]);
    }
    pthread_mutex_unlock(&m->lora_lock);
    buf_putc(out, ']');
    c->reply.status = 200;
}

/* Of several tenants none may change what the others get. */
void lora_apply(call *c, json_object *body) {
    const serve_keys *keys = c->server->opts->keys;
    served *m = c->on;
    if (keys && keys->n > 1) {
        reply_error(&c->reply, 403, "forbidden", NULL,
                    "This server has several keys, and the scales would be everybody's: say 'lora' "
                    "in each request instead.");
        return;
    }
    float *scales = mem_alloc((m->n_lora + 1) * sizeof *scales);
    if (!scales) {
        reply_error(&c->reply, 503, NULL, NULL, "Out of memory.");
        return;
    }
    if (read_scales(body, scales, m->n_lora, &c->reply)) {
        pthread_mutex_lock(&m->lora_lock);
        memcpy(m->lora, scales, m->n_lora * sizeof *scales);
        pthread_mutex_unlock(&m->lora_lock);
        buf_puts(&c->reply.body, "{\"success\":true}");
        c->reply.status = 200;
    }
    mem_free(scales);
}
