/* A call: one HTTP request from its headers to the end of its answer. Sleep, wake, and what the
 * watcher does to it; the rest of its life is in http.c. See serve_internal.h for the states. */
#include <string.h>
#include <sys/socket.h>

#include "serve_internal.h"

#define KEEP_ALIVE_AFTER 5.0 /* seconds without a byte of a stream */

/* libmicrohttpd closes a connection whose socket failed as soon as it is resumed, and that ends the
 * call: not while a worker has it. The worker wakes it when it is done. */
static void wake(call *c) {
    if (c->state == CALL_WORKING) return;
    if (c->asleep) {
        c->asleep = false;
        MHD_resume_connection(c->mhd);
    } else {
        c->woken = true;
    }
}

void call_wake(call *c) {
    pthread_mutex_lock(&c->lock);
    wake(c);
    pthread_mutex_unlock(&c->lock);
}

void call_wake_arg(void *c) {
    call_wake(c);
}

/* Finds out whether a client that has closed its sending side still reads (watch.c). Bytes may go
 * past libmicrohttpd only while it is suspended and has not begun an answer. */
static void probe(call *c) {
    static const char interim[] = "HTTP/1.1 102 Processing\r\n\r\n";
    c->probed = true;
    if (c->state == CALL_STREAMING) {
        c->ping = true;
        wake(c);
    } else if (c->http11) {
        send(c->conn->fd, interim, sizeof interim - 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else { /* HTTP/1.0 knows no interim answers */
        c->conn->gone = true;
        wake(c);
    }
}

bool call_sleep(call *c) {
    pthread_mutex_lock(&c->lock);
    if (c->conn->half_closed && !c->probed) probe(c);
    bool sleeps = !c->woken;
    c->woken = false;
    if (sleeps) {
        c->asleep = true;
        MHD_suspend_connection(c->mhd);
    }
    pthread_mutex_unlock(&c->lock);
    return sleeps;
}

void call_set_state(call *c, enum call_state state) {
    pthread_mutex_lock(&c->lock);
    c->state = state;
    c->quiet = clock_now();
    pthread_mutex_unlock(&c->lock);
}

enum call_state call_get_state(call *c) {
    pthread_mutex_lock(&c->lock);
    enum call_state state = c->state;
    pthread_mutex_unlock(&c->lock);
    return state;
}

bool call_take_ping(call *c) {
    pthread_mutex_lock(&c->lock);
    bool ping = c->ping;
    c->ping = false;
    pthread_mutex_unlock(&c->lock);
    return ping;
}

void call_hung_up(call *c) {
    wake(c);
}

void call_half_closed(call *c) {
    if (c->asleep && !c->probed) probe(c);
}

void call_tick(call *c, double now) {
    if (c->state != CALL_STREAMING || !c->asleep || now - c->quiet < KEEP_ALIVE_AFTER) return;
    c->quiet = now;
    c->ping = true;
    wake(c);
}

void call_drop_body(call *c) {
    c->server->body_bytes -= c->body_held;
    c->body_held = 0;
    buf_fini(&c->body);
}

/* From the worker to the http thread. In one step: the call may end as soon as its state says so.
 */
static void hand_back(call *c) {
    pthread_mutex_lock(&c->lock);
    c->state = c->reply.status ? CALL_REPLYING : CALL_GENERATING;
    wake(c);
    pthread_mutex_unlock(&c->lock);
}

static const char *argument(call *c, const char *name) {
    return MHD_lookup_connection_value(c->mhd, MHD_GET_ARGUMENT_KIND, name);
}

void call_answer(call *c) {
    if (!strcmp(c->method, "POST")) return; /* on a worker */
    if (c->route->of_model && c->server->only)
        c->on = c->server->only;
    else if (c->route->of_model && !shelf_take_ready(c->server->shelf, c, argument(c, "model")))
        return;
    if (!strcmp(c->method, "DELETE"))
        c->route->drop(c);
    else
        c->route->get(c);
}

/* The model that a body names; of a server with one model the name does not matter. */
static enum taken take_model(call *c) {
    if (c->server->only) {
        c->on = c->server->only;
        return MODEL_TAKEN;
    }
    json_object *name =
        c->route->list ? NULL : field_of_type(c->parsed, "model", json_type_string, &c->reply);
    if (c->reply.status) return MODEL_REFUSED;
    return shelf_take(c->server->shelf, c,
                      name ? json_object_get_string(name) : argument(c, "model"));
}

/* Reads the body and takes the model. False: the call waits for it, and is somebody else's now. */
static bool prepare_post(call *c) {
    enum json_type type = c->route->list ? json_type_array : json_type_object;
    bool none = c->route->any_body && !c->body.len;
    c->parsed = json_parse(none           ? "{}"
                           : c->body.data ? c->body.data
                                          : "",
                           none ? 2 : c->body.len, type, &c->reply);
    call_drop_body(c);
    return !c->parsed || take_model(c) != MODEL_AWAITED;
}

static void run_post(call *c) {
    if (c->on && !c->conn->gone) c->route->post(c, c->parsed);
    json_object_put(c->parsed);
    c->parsed = NULL;
}

void call_work(call *c) {
    bool is_post = !strcmp(c->method, "POST"), is_back = c->parsed != NULL;
    if (is_post && !is_back && !prepare_post(c)) return;
    if (is_post)
        run_post(c);
    else
        call_answer(c);
    if (!c->reply.status && !c->generation)
        reply_error(&c->reply, 500, "internal_error", NULL, "The request was not answered.");
    hand_back(c);
}

call *call_new(server *s, conn *on, struct MHD_Connection *mhd) {
    call *c = mem_zero(1, sizeof *c);
    if (!c) return NULL;
    c->server = s;
    c->conn = on;
    c->mhd = mhd;
    c->tenant = "";
    c->began = clock_now();
    pthread_mutex_init(&c->lock, NULL);
    s->calls++;
    return c;
}

void call_free(call *c) {
    call_drop_body(c);
    generation_free(&c->generation);
    if (c->on && c->server->shelf) shelf_release(c->server->shelf, c->on);
    json_object_put(c->parsed);
    reply_fini(&c->reply);
    pthread_mutex_lock(&c->lock); /* a worker that woke the call may still be about to unlock */
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->method);
    mem_free(c->path);
    mem_free(c->origin);
    c->server->calls--;
    mem_free(c);
}
