/* run: a conversation in the terminal.
 *
 * The whole history is rendered and sent anew each turn: the prefix cache makes that cheap. Ctrl-C
 * stops the reply that is being written and keeps what came of it; at the prompt it clears the
 * line; Ctrl-D ends. A model without a chat template goes on with each line as the text it is. */
#include "cli.h"

#include <editline/readline.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct chat {
    icp_model *model;
    icp_engine *engine;
    json_object *messages;
    const char *system;
    float temperature, top_p;
    int max_tokens;
    int seed; /* -1: another one each time */
} chat;

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal) {
    (void)signal;
    interrupted = 1;
}

static void add_message(chat *c, const char *role, const char *content) {
    json_object *message = json_object_new_object();
    json_object_object_add(message, "role", json_object_new_string(role));
    json_object_object_add(message, "content", json_object_new_string(content));
    json_object_array_add(c->messages, message);
}

static void clear(chat *c) {
    json_object_put(c->messages);
    c->messages = json_object_new_array();
    if (c->system) add_message(c, "system", c->system);
}

/* Of a model without a template: what was said last. */
static int tokenize_last(const chat *c, icp_tokens *out, icp_error *err) {
    json_object *last =
        json_object_array_get_idx(c->messages, json_object_array_length(c->messages) - 1);
    const char *text = json_object_get_string(json_object_object_get(last, "content"));
    return icp_tokenize(c->model, text, strlen(text), false, true, out, err);
}

/* The prompt of the conversation so far. */
static int render(const chat *c, icp_tokens *out, icp_error *err) {
    if (!icp_model_get_info(c->model)->has_template) return tokenize_last(c, out, err);
    json_object *vars = json_object_new_object();
    json_object_object_add(vars, "messages", json_object_get(c->messages));
    json_object_object_add(vars, "add_generation_prompt", json_object_new_boolean(1));
    int rc =
        icp_chat_tokenize(c->model, json_object_to_json_string_ext(vars, JSON_C_TO_STRING_PLAIN),
                          out, NULL, NULL, err);
    json_object_put(vars);
    return rc;
}

/* Prints a reply as it comes and appends it to `reply`. */
static int stream(icp_request *r, buf *reply, icp_event *last, bool quiet) {
    bool cancelled = false;
    for (;;) {
        icp_wait(r, 0.1);
        if (interrupted && !cancelled) {
            cancelled = true;
            icp_cancel(r);
        }
        while (icp_next(r, last)) {
            if (last->kind == ICP_EVENT_DONE) return last->error;
            if (last->kind == ICP_EVENT_PROMPT) continue;
            buf_put(reply, last->text, last->text_len);
            if (quiet) continue;
            fwrite(last->text, 1, last->text_len, stdout);
            fflush(stdout);
        }
    }
}

static int answer(chat *c, icp_error *err) {
    icp_request_opts opts;
    icp_tokens prompt = {0};
    icp_request *r = NULL;
    icp_event event = {0};
    buf reply = {0};
    TRY(render(c, &prompt, err));
    icp_request_opts_init(&opts);
    opts.prompt = prompt.id;
    opts.n_prompt = prompt.n;
    opts.max_tokens = c->max_tokens > 0 ? c->max_tokens : -1;
    opts.temperature = c->temperature;
    opts.top_p = c->top_p;
    opts.seed = c->seed >= 0 ? (uint64_t)c->seed : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
    interrupted = 0;
    int rc = icp_submit(c->engine, &opts, &r, err);
    if (rc == 0) {
        rc = stream(r, &reply, &event, false);
        printf("\n");
        if (rc < 0) error_set(err, rc, "the reply failed: %s", icp_strerror(rc));
    }
    if (rc == 0) add_message(c, "assistant", reply.data ? reply.data : "");
    if (rc == 0 && isatty(STDOUT_FILENO)) {
        const icp_usage *u = &event.usage;
        double seconds = u->total_s - u->first_token_s;
        fprintf(stderr,
                "\033[2m[%zu of %zu prompt tokens from the cache, first token %.0f ms, %.1f "
                "tokens/s]\033[0m\n",
                u->cached_tokens, u->prompt_tokens, u->first_token_s * 1e3,
                seconds > 0 ? (double)(u->completion_tokens - (u->completion_tokens > 0)) / seconds
                            : 0);
    }
    icp_request_free(&r);
    icp_tokens_free(&prompt);
    buf_fini(&reply);
    return rc;
}

static int converse(chat *c, icp_error *err) {
    const icp_model_info *info = icp_model_get_info(c->model);
    printf("%s. Ctrl-C stops a reply, /clear forgets, Ctrl-D ends.\n", info->name);
    if (!info->has_template) printf("It has no chat template: it goes on with what you type.\n");
    char *line;
    for (;;) {
        interrupted = 0;
        line = readline("> ");
        if (!line && interrupted) { /* Ctrl-C at the prompt */
            printf("\n");
            continue;
        }
        if (!line) break;
        if (!strcmp(line, "/exit") || !strcmp(line, "/quit")) break;
        if (!strcmp(line, "/clear")) {
            clear(c);
        } else if (line[0] == '/' && (!strcmp(line, "/help") || !strcmp(line, "/?"))) {
            printf("/clear forgets the conversation, /exit ends.\n");
        } else if (line[0]) {
            add_history(line);
            add_message(c, "user", line);
            if (answer(c, err) < 0) { /* the turn is taken back; the conversation goes on */
                cli_say("%s", err->text);
                json_object_array_del_idx(c->messages, json_object_array_length(c->messages) - 1,
                                          1);
            }
        }
        free(line);
        line = NULL;
    }
    free(line);
    printf("\n");
    return 0;
}

static int run(chat *c, const model_options *o, char **operands, int n, icp_error *err) {
    TRY(cli_open_model(o, false, &c->model, err));
    TRY(icp_engine_open(c->model, NULL, &c->engine, err));
    clear(c);
    if (n == 0 && isatty(STDIN_FILENO)) return converse(c, err);
    buf prompt = {0};
    for (int i = 0; i < n; i++) {
        if (i) buf_putc(&prompt, ' ');
        buf_puts(&prompt, operands[i]);
    }
    int rc = n > 0 ? 0 : cli_read(NULL, &prompt, err);
    if (rc == 0 && !prompt.len) rc = error_set(err, ICP_EINVALID, "the prompt is empty");
    if (rc == 0) {
        add_message(c, "user", prompt.data);
        rc = answer(c, err);
    }
    buf_fini(&prompt);
    return rc;
}

int cmd_run(int argc, char **argv) {
    char **operands;
    int n_operands;
    model_options o = {0};
    chat c = {.temperature = 0.7f, .top_p = 0.95f, .seed = -1};
    const cli_option options[] = {
        CLI_OPTION_MODEL(o),
        {0, "system", "TEXT", "a system message", OPTION_TEXT, &c.system, 0, 0},
        {'n', "max-tokens", "N", "length of a reply at most (the context)", OPTION_INT,
         &c.max_tokens, 1, 0},
        {0, "temperature", "T", "0: always the likeliest token (0.7)", OPTION_FLOAT, &c.temperature,
         0, 100},
        {0, "top-p", "P", "sample from the likeliest tokens that make up P (0.95)", OPTION_FLOAT,
         &c.top_p, 0, 1},
        {0, "seed", "N", "the same seed gives the same reply", OPTION_INT, &c.seed, 0, 0},
        {'c', "ctx", "N", "context in tokens (as the model was trained)", OPTION_INT, &o.ctx, 1, 0},
        CLI_OPTIONS_COMPUTE(o),
        CLI_OPTIONS_ROPE(o),
        CLI_OPTION_TEMPLATE_DATE(o)};
    cli_parse(
        &(cli_usage){"run", "[PROMPT…]",
                     "Chats in the terminal; with a prompt (or one on stdin) answers it and ends.",
                     "example: incipit run \"Why is the sky blue?\"", options, COUNT_OF(options)},
        argc, argv, &operands, &n_operands);
    struct sigaction action = {.sa_handler =
                                   on_interrupt}; /* no SA_RESTART: it ends readline's wait */
    sigaction(SIGINT, &action, NULL);
    icp_error err = {0};
    int rc = run(&c, &o, operands, n_operands, &err);
    bool stopped = interrupted && n_operands > 0;
    json_object_put(c.messages);
    icp_engine_close(&c.engine);
    icp_model_close(&c.model);
    return rc < 0 ? cli_fail(&err) : stopped ? 128 + SIGINT : EXIT_DONE;
}
