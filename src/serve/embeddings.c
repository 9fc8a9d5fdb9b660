/* OpenAI's /v1/embeddings: texts, or token ids, to vectors of length 1.
 *
 * https://platform.openai.com/docs/api-reference/embeddings */
#include <math.h>
#include <string.h>

#include "generation.h"

enum { MAX_INPUTS = 2048 };

struct own {
    bool base64;
    int dimensions; /* of an answer's vectors: the first so many of the model's */
    size_t width;   /* of the model's */
    float *vectors; /* of each input, as they come */
};

static const field own_fields[] = {
    {"dimensions", FIELD_INT, offsetof(struct own, dimensions), 1, 1 << 24},
};

static void free_own(void *own) {
    struct own *o = own;
    if (o) mem_free(o->vectors);
    mem_free(o);
}

/* ---- out ------------------------------------------------------------------------------------- */

static void take_vector(generation *g, size_t i, const icp_event *done) {
    const struct own *o = g->own;
    size_t n = MIN(done->n_vector, o->width);
    if (n) memcpy(o->vectors + i * o->width, done->vector, n * sizeof *o->vectors);
}

/* To length 1, as OpenAI's are, so that a dot product is the cosine; a zero stays one. */
static void normalize(float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (size_t i = 0; i < n; i++) x[i] = (float)((double)x[i] * scale);
}

static void put_floats(buf *out, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++) buf_printf(out, "%s%.9g", i ? "," : "[", (double)x[i]);
    buf_putc(out, ']');
}

/* RFC 4648, section 4, of little-endian numbers. */
static void put_base64(buf *out, const float *x, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t group = 0;
    size_t n_bytes = 0;
    buf_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        for (int byte = 0; byte < 4; byte++) {
            group = group << 8 | (bits >> 8 * byte & 0xFF);
            if (++n_bytes % 3) continue;
            for (int shift = 18; shift >= 0; shift -= 6) buf_putc(out, digits[group >> shift & 63]);
            group = 0;
        }
    }
    size_t left = n_bytes % 3;
    group <<= 8 * (3 - left);
    for (size_t i = 0; left && i < 4; i++)
        buf_putc(out, i <= left ? digits[group >> (18 - 6 * i) & 63] : '=');
    buf_putc(out, '"');
}

static void put_whole(generation *g, buf *out) {
    const struct own *o = g->own;
    size_t n = (size_t)o->dimensions;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < g->n_prompts; i++) {
        float *x = o->vectors + i * o->width;
        normalize(x, n);
        buf_printf(out, "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "",
                   i);
        (o->base64 ? put_base64 : put_floats)(out, x, n);
        buf_putc(out, '}');
    }
    put_string_member(out, "],\"model\":", g->call->on->name);
    buf_puts(out, ",\"usage\":");
    put_prompt_usage(g, out);
    buf_putc(out, '}');
}

static const dialect embeddings = {.id_prefix = "embd-",
                                   .purpose = TO_EMBED,
                                   .prompt_field = "input",
                                   .put_whole = put_whole,
                                   .take_vector = take_vector,
                                   .free_own = free_own};

/* ---- in -------------------------------------------------------------------------------------- */

static bool read_format(struct own *o, json_object *body, reply *error) {
    json_object *format = field_of_type(body, "encoding_format", json_type_string, error);
    const char *name = format ? json_object_get_string(format) : "float";
    o->base64 = !strcmp(name, "base64");
    if (!o->base64 && strcmp(name, "float") != 0)
        reply_error(error, 400, "invalid_value", "encoding_format",
                    "Invalid value for 'encoding_format': it is 'float' or 'base64', not '%.40s'.",
                    name);
    return !error->status;
}

static bool read_own(generation *g, json_object *body, reply *error) {
    const icp_model_info *info = icp_model_get_info(g->call->on->model);
    struct own *o = g->own = mem_zero(1, sizeof *o);
    if (!o) return reply_error(error, 503, NULL, NULL, "Out of memory."), false;
    o->width = info->n_embd;
    o->dimensions = (int)info->n_embd;
    if (!fields_read(body, "", own_fields, COUNT_OF(own_fields), o, error) ||
        !read_format(o, body, error))
        return false;
    if ((size_t)o->dimensions > o->width)
        reply_error(error, 400, "invalid_value", "dimensions",
                    "Invalid value for 'dimensions': this model's vectors have %zu.", o->width);
    else if (!strcmp(info->pooling, "none"))
        reply_error(error, 400, "unsupported", "model",
                    "This model has a vector for each token and none for a text: its file names no "
                    "pooling.");
    else if (!(o->vectors = mem_zero(g->n_prompts * o->width, sizeof *o->vectors)))
        reply_error(error, 503, NULL, NULL, "Out of memory.");
    return !error->status;
}

/* OpenAI takes no empty text; what frames it would have a vector all the same. */
static bool has_empty(json_object *value) {
    bool list = json_object_is_type(value, json_type_array);
    size_t n = list ? json_object_array_length(value) : 1;
    for (size_t i = 0; i < n; i++) {
        json_object *item = list ? json_object_array_get_idx(value, i) : value;
        if (json_object_is_type(item, json_type_string) && !json_object_get_string_len(item))
            return true;
    }
    return false;
}

static void set_opts(generate_opts *o) {
    o->stream = false;
    o->max_tokens = 0;
    o->request.embed = true;
}

void embeddings_start(call *c, json_object *body) {
    json_object *value = field_get(body, "input");
    if (!value) {
        reply_error(&c->reply, 400, "missing_field", "input", "Missing field: 'input'.");
        return;
    }
    if (has_empty(value)) {
        reply_error(&c->reply, 400, "invalid_value", "input",
                    "Invalid value for 'input': a text is empty.");
        return;
    }
    size_t n = prompts_count(value, "input", MAX_INPUTS, &c->reply);
    generation *g = n ? generation_new(c, &embeddings, body, n) : NULL;
    if (!g) return;
    set_opts(&g->opts);
    if (read_own(g, body, &c->reply) && prompts_read(g, value, "input", true))
        generation_submit(g);
    else
        generation_free(&g);
}
