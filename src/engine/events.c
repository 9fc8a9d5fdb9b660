/*   in:  [record][top…][text] [record][text] …   appended by the engine
 *   out: [record][text] …                        read from `at`, until it is used up */
#include <string.h>

#include "engine_internal.h"

typedef struct record { /* an icp_event without its arrays; of its usage, what is known early */
    size_t position, text_len, n_prompt, n_cached, rank;
    icp_logprob chosen;
    int32_t token, choice, stop_index, error;
    uint8_t kind, finish, n_top;
} record;

int event_put(event_queue *q, const icp_event *event) {
    record r = {.position = event->position, .text_len = event->text_len, .chosen = event->chosen};
    r.n_prompt = event->usage.prompt_tokens, r.n_cached = event->usage.cached_tokens;
    r.rank = event->rank;
    r.token = event->token, r.choice = event->choice;
    r.stop_index = event->stop_index, r.error = event->error;
    r.kind = (uint8_t)event->kind, r.finish = (uint8_t)event->finish;
    r.n_top = (uint8_t)event->n_top;
    size_t before = q->in.len;
    buf_put(&q->in, &r, sizeof r);
    buf_put(&q->in, event->top, (size_t)event->n_top * sizeof event->top[0]);
    buf_put(&q->in, event->text, event->text_len);
    if (!q->in.failed) return 0;
    q->in.len = before; /* what stands there stays readable */
    q->in.failed = false;
    return ICP_ENOMEM;
}

size_t event_growth(const event_queue *q, const icp_event *event) {
    enum { LEAST = 64 }; /* bytes a buf grows by */
    size_t need =
        sizeof(record) + (size_t)event->n_top * sizeof event->top[0] + event->text_len + 1;
    return need <= q->in.cap - q->in.len ? 0 : MAX(need, q->in.cap / 2) + LEAST;
}

bool event_queue_empty(const event_queue *q) {
    return q->at == q->out.len && q->in.len == 0;
}

size_t event_unread(const event_queue *q) {
    return q->in.len + (q->out.len - q->at);
}

size_t event_shrink(event_queue *q) {
    enum { KEPT = 4 << 10 };
    size_t size = q->in.cap;
    if (q->in.len > 0 || size <= KEPT) return 0;
    buf_fini(&q->in);
    return size;
}

bool event_take(event_queue *q, icp_event *event) {
    if (event_queue_empty(q)) return false;
    if (q->at == q->out.len) {
        buf used = q->out;
        q->out = q->in;
        q->in = used;
        buf_clear(&q->in);
        q->at = 0;
    }
    const char *from = q->out.data + q->at;
    record r;
    memcpy(&r, from, sizeof r);
    from += sizeof r;
    *event = (icp_event){.kind = r.kind, .choice = r.choice, .token = r.token};
    event->rank = r.rank;
    event->position = r.position, event->chosen = r.chosen, event->n_top = r.n_top;
    event->finish = r.finish, event->stop_index = r.stop_index, event->error = r.error;
    event->usage.prompt_tokens = r.n_prompt, event->usage.cached_tokens = r.n_cached;
    memcpy(event->top, from, (size_t)r.n_top * sizeof event->top[0]);
    from += (size_t)r.n_top * sizeof event->top[0];
    event->text = from;
    event->text_len = r.text_len;
    q->at = (size_t)(from - q->out.data) + r.text_len;
    return true;
}

void event_queue_fini(event_queue *q) {
    buf_fini(&q->in);
    buf_fini(&q->out);
}
