/* The parser's core: bytes in, text and markers told apart, deltas out. Invariants in
 * chat_internal.h. */
#include "chat_internal.h"
#include "json.h"

#include <json-c/json.h>

enum { MAX_HEADER = 1024, MAX_SPECIAL = 64 };

/* ---- markers -------------------------------------------------------------------------------- */

enum match marker_match(const chat_parser *p, enum marker_id id, size_t at) {
    const chat_marker *m = &p->marker[id];
    if (!m->text) return MATCH_NO;
    size_t n = MIN(m->len, p->in.len - at);
    if (memcmp(p->in.data + at, m->text, n) != 0) return MATCH_NO;
    for (size_t i = 0; i < n; i++) {
        int origin = p->origin.data[at + i] & (ORIGIN_BEGINS | ORIGIN_GOES_ON);
        if ((m->special >> i & 1) && !origin) return MATCH_NO;
        if ((m->begins >> i & 1) && !(origin & ORIGIN_BEGINS)) return MATCH_NO;
    }
    if (n == m->len) return MATCH_YES;
    return p->ending ? MATCH_NO : MATCH_PART;
}

enum match marker_find(const chat_parser *p, enum marker_id id, size_t from, size_t *where) {
    for (size_t i = from; i < p->in.len; i++) {
        enum match match = marker_match(p, id, i);
        *where = i;
        if (match != MATCH_NO) return match;
    }
    *where = p->in.len;
    return MATCH_NO;
}

/* Which bytes of a marker must be special tokens: from the left, the longest that are some. */
static void set_marker(chat_parser *p, const chat_parser_opts *opts, enum marker_id id,
                       const char *text) {
    chat_marker *m = &p->marker[id];
    *m = (chat_marker){.text = text, .len = text ? strlen(text) : 0};
    for (size_t i = 0; opts->is_special && i < m->len;) {
        size_t n = MIN(m->len, MAX_SPECIAL) - i;
        while (n && !opts->is_special(opts->arg, text + i, n)) n--;
        if (n) m->begins |= UINT64_C(1) << i;
        for (size_t k = 0; k < n; k++) m->special |= UINT64_C(1) << (i + k);
        i += MAX(n, 1);
    }
}

static void set_markers(chat_parser *p, const chat_parser_opts *opts) {
    const chat_dialect *d = p->calls;
    for (int i = 0; i < CHAT_MAX_DROP; i++) set_marker(p, opts, M_DROP + i, d->drop[i]);
    if (p->reasoning) {
        set_marker(p, opts, M_THINK, p->reasoning->open);
        set_marker(p, opts, M_THINK_END, p->reasoning->close);
    }
    if (p->channels) {
        set_marker(p, opts, M_START, p->channels->start);
        set_marker(p, opts, M_MESSAGE, p->channels->message);
        for (int i = 0; i < 3; i++) set_marker(p, opts, M_END + i, p->channels->end[i]);
    }
    if (!p->tools) return;
    set_marker(p, opts, M_SECTION, d->section);
    set_marker(p, opts, M_SECTION_END, d->section_end);
    set_marker(p, opts, M_CALL, d->call);
    set_marker(p, opts, M_CALL_END, d->call_end);
    set_marker(p, opts, M_KEY, d->key);
    set_marker(p, opts, M_VALUE, d->value);
    set_marker(p, opts, M_VALUE_END, d->value_end);
    set_marker(p, opts, M_QUOTE, d->quote);
}

/* ---- deltas --------------------------------------------------------------------------------- */

static struct chat_delta_range *add_delta(chat_parser *p) {
    if (p->n_deltas == p->cap_deltas) {
        size_t cap = p->cap_deltas ? 2 * p->cap_deltas : 8;
        void *more = mem_resize(p->deltas, cap, sizeof *p->deltas);
        if (!more) return p->failed = true, NULL;
        p->deltas = more;
        p->cap_deltas = cap;
    }
    return &p->deltas[p->n_deltas++];
}

void chat_tell(chat_parser *p, enum icp_chat_delta_kind kind, const char *text, size_t len) {
    bool running = kind != ICP_CHAT_CALL && kind != ICP_CHAT_CALL_END;
    if (running && !len) return;
    struct chat_delta_range *last = p->n_deltas ? &p->deltas[p->n_deltas - 1] : NULL;
    if (!running || !last || last->delta.kind != kind) {
        last = add_delta(p);
        if (!last) return;
        *last = (struct chat_delta_range){
            .delta = {.kind = kind, .call = p->n_calls ? p->n_calls - 1 : 0, .id = ""},
            .from = p->told.len};
    }
    buf_put(&p->told, text, len);
    last->len = p->told.len - last->from;
}

static void tell_text(chat_parser *p, const char *text, size_t len) {
    while (p->trim && len && is_blank(*text)) text++, len--;
    if (!len) return;
    size_t end = len;
    bool hold = p->thinking || p->tools;
    while (hold && end && is_blank(text[end - 1])) end--;
    if (end) {
        enum icp_chat_delta_kind kind = p->thinking ? ICP_CHAT_REASONING : ICP_CHAT_CONTENT;
        chat_tell(p, kind, p->blanks.data, p->blanks.len);
        chat_tell(p, kind, text, end);
        buf_clear(&p->blanks);
        p->trim = false;
        if (!p->thinking) p->pristine = false;
    }
    buf_put(&p->blanks, text + end, len - end);
}

static bool is_hidden(const chat_parser *p, size_t at) {
    return !p->keep_special && (p->origin.data[at] & ORIGIN_CONTROL);
}

void tell_range(chat_parser *p, enum icp_chat_delta_kind kind, size_t from, size_t to) {
    while (from < to) {
        bool hidden = is_hidden(p, from);
        size_t end = from + 1;
        while (end < to && is_hidden(p, end) == hidden) end++;
        if (!hidden && kind == ICP_CHAT_ARGUMENTS)
            chat_tell(p, kind, p->in.data + from, end - from);
        else if (!hidden)
            tell_text(p, p->in.data + from, end - from);
        from = end;
    }
}

bool chat_parser_next(chat_parser *p, icp_chat_delta *delta) {
    if (p->next_delta == p->n_deltas) return false;
    const struct chat_delta_range *r = &p->deltas[p->next_delta++];
    *delta = r->delta;
    delta->text = p->told.data ? p->told.data + r->from : "";
    delta->len = r->len;
    if (delta->kind == ICP_CHAT_CALL) delta->id = p->told.data + r->from + r->len + 1;
    return true;
}

/* ---- regions and states --------------------------------------------------------------------- */

void consume(chat_parser *p, size_t to) {
    p->at = to;
    p->scanned = 0;
    if (!p->region) p->mark = to;
}

void region_begin(chat_parser *p, size_t at, size_t resume) {
    p->region = true;
    p->bare = false;
    p->mark = at;
    p->resume = p->at = resume;
    p->scanned = 0;
}

void enter_text(chat_parser *p, bool thinking) {
    if (p->thinking && !thinking) buf_clear(&p->blanks);
    p->state = S_TEXT;
    p->thinking = thinking;
    p->trim = true;
}

void enter_section(chat_parser *p) {
    p->state = S_SECTION;
    p->scanned = 0;
}

bool region_give_up(chat_parser *p) {
    p->state = S_TEXT;
    if (!p->region) { /* calls were told; what follows them is text */
        enter_text(p, false);
        return true;
    }
    p->region = false;
    tell_range(p, ICP_CHAT_CONTENT, p->mark, p->resume);
    p->pristine = false;
    consume(p, p->resume);
    return true;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Whether a marker counts where we are. */
static bool is_active(const chat_parser *p, enum marker_id id) {
    if (id >= M_END) return true;
    if (p->thinking) return id == M_THINK_END && !p->channels;
    switch (id) {
    case M_THINK: /* in ordinary letters only at the beginning */
        return p->marker[id].special || p->pristine;
    case M_SECTION:
    case M_CALL:
        return true;
    case M_SECTION_END:
    case M_CALL_END:
        return p->n_calls > 0;
    default:
        return id < M_THINK;
    }
}

/* A marker was found in text; `at` stands on it. */
static void enter_marker(chat_parser *p, enum marker_id id) {
    size_t end = p->at + p->marker[id].len;
    if (id >= M_END) {
        if (p->thinking) enter_text(p, false);
        p->state = S_HEADER;
    } else if (id == M_THINK || id == M_THINK_END) {
        enter_text(p, id == M_THINK);
    } else if (id == M_SECTION || id == M_CALL) {
        region_begin(p, p->at, end);
        bool head =
            id == M_CALL && (p->calls->syntax == CHAT_NAMED || p->calls->syntax == CHAT_KEYED);
        p->state = head ? S_HEAD : S_SECTION;
        return;
    } else if (id != M_SECTION_END && id != M_CALL_END && p->pristine) {
        p->trim = true;
    }
    consume(p, end);
}

/* Calls that begin without a marker; true: the state has changed. more: not known yet. */
static bool enter_bare(chat_parser *p, bool *more) {
    size_t i = p->at;
    while (i < p->in.len && is_blank(p->in.data[i])) i++;
    *more = i == p->in.len && !p->ending;
    if (i == p->in.len) return false;
    char c = p->in.data[i];
    bool list = p->calls->syntax == CHAT_LITERAL;
    if (list ? c != '[' : c != '{') return false;
    region_begin(p, p->at, i + 1);
    p->bare = true;
    p->at = i;
    enter_section(p);
    return true;
}

static bool step_text(chat_parser *p) {
    bool more = false;
    if (p->tools && p->calls->bare && !p->marked && p->pristine && !p->thinking &&
        enter_bare(p, &more))
        return true;
    if (more) return false;
    for (size_t i = p->at; i < p->in.len; i++) {
        for (int id = 0; id < N_MARKERS; id++) {
            if (!p->marker[id].text || p->marker[id].text[0] != p->in.data[i]) continue;
            if (!is_active(p, id)) continue;
            enum match match = marker_match(p, id, i);
            if (match == MATCH_NO) continue;
            tell_range(p, ICP_CHAT_CONTENT, p->at, i);
            consume(p, i);
            if (!is_active(p, id)) return true; /* what was told has changed that */
            if (match == MATCH_PART) return false;
            enter_marker(p, id);
            return true;
        }
    }
    tell_range(p, ICP_CHAT_CONTENT, p->at, p->in.len);
    consume(p, p->in.len);
    return false;
}

/* ---- messages with headers ------------------------------------------------------------------ */

static size_t find_text(const char *text, size_t len, const char *what) {
    const char *at = memmem(text, len, what, strlen(what));
    return at ? (size_t)(at - text) : len;
}

/* A header names a function: its name. */
static text_str header_call(const chat_parser *p, const char *text, size_t len) {
    const char *word = p->channels->call;
    if (!word || !p->tools) return (text_str){0};
    size_t at = find_text(text, len, word), n = 0;
    if (at == len) return (text_str){0};
    text += at + strlen(word);
    len -= at + strlen(word);
    static const char prefix[] = "functions.";
    if (len >= sizeof prefix - 1 && !memcmp(text, prefix, sizeof prefix - 1)) {
        text += sizeof prefix - 1;
        len -= sizeof prefix - 1;
    }
    while (n < len && !is_blank(text[n]) && text[n] != '<') n++;
    return (text_str){text, n};
}

/* Whether a header may begin like this; a model may also forget it and just talk. */
static bool may_be_header(const chat_parser *p) {
    const char *text = p->in.data + p->at;
    size_t n = p->in.len - p->at;
    while (n && is_blank(*text)) text++, n--;
    static const char *const words[] = {"<|", "to=", "assistant"};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (!memcmp(text, words[i], MIN(n, strlen(words[i])))) return true;
    return false;
}

static void enter_message(chat_parser *p, size_t end) {
    const char *text = p->in.data + p->at;
    size_t len = end - p->at;
    text_str name = header_call(p, text, len);
    bool thought = find_text(text, len, p->channels->thought) < len;
    if (name.len && call_begin(p, name.data, name.len, "", 0))
        p->state = S_BODY;
    else
        enter_text(p, thought);
    consume(p, end + p->marker[M_MESSAGE].len);
}

static bool step_header(chat_parser *p) {
    size_t end;
    if (p->at == p->in.len) return false;
    if (!may_be_header(p)) {
        enter_text(p, false);
        return true;
    }
    enum match match = marker_find(p, M_MESSAGE, p->at + p->scanned, &end);
    if (end - p->at > MAX_HEADER) {
        enter_text(p, false);
        return true;
    }
    if (match == MATCH_YES) {
        enter_message(p, end);
        return true;
    }
    p->scanned = end - p->at;
    if (p->ending) consume(p, p->in.len); /* cut off */
    return false;
}

static bool step_body(chat_parser *p) {
    for (size_t i = p->at; i < p->in.len; i++) {
        for (int id = M_END; id < N_MARKERS; id++) {
            enum match match = marker_match(p, id, i);
            if (match == MATCH_NO) continue;
            tell_range(p, ICP_CHAT_ARGUMENTS, p->at, i);
            consume(p, i);
            if (match == MATCH_PART) return false;
            call_end(p);
            p->state = S_HEADER;
            consume(p, i + p->marker[id].len);
            return true;
        }
    }
    tell_range(p, ICP_CHAT_ARGUMENTS, p->at, p->in.len);
    consume(p, p->in.len);
    return false;
}

/* ---- life ----------------------------------------------------------------------------------- */

static int parse_tools(chat_parser *p, const char *tools_json, icp_error *err) {
    if (!tools_json) return 0;
    p->tools = json_read_whole(tools_json, strlen(tools_json));
    if (json_object_is_type(p->tools, json_type_array)) return 0;
    return error_set(err, ICP_EFORMAT, "tools: not a JSON list");
}

int chat_parser_open(const chat_parser_opts *opts, chat_parser **out, icp_error *err) {
    chat_parser *p = mem_zero(1, sizeof *p);
    if (!p) return error_set(err, ICP_ENOMEM, "out of memory");
    p->calls = opts->style.calls;
    p->reasoning = opts->style.reasoning;
    p->channels = opts->style.channels;
    p->keep_special = opts->keep_special;
    p->pristine = true;
    p->marked = opts->marked && !opts->style.calls->section;
    int rc = parse_tools(p, opts->tools_json, err);
    if (rc < 0) {
        chat_parser_close(&p);
        return rc;
    }
    set_markers(p, opts);
    p->state = p->channels ? S_HEADER : S_TEXT;
    *out = p;
    return 0;
}

void chat_parser_close(chat_parser **pp) {
    chat_parser *p = *pp;
    if (!p) return;
    *pp = NULL;
    json_object_put(p->tools);
    object_scan_fini(&p->object);
    buf *bufs[] = {&p->in, &p->origin, &p->blanks, &p->key, &p->attributes, &p->told};
    for (size_t i = 0; i < COUNT_OF(bufs); i++) buf_fini(bufs[i]);
    mem_free(p->deltas);
    mem_free(p);
}

/* ---- bytes in ------------------------------------------------------------------------------- */

static bool step(chat_parser *p) {
    switch (p->state) {
    case S_TEXT:
        return step_text(p);
    case S_HEADER:
        return step_header(p);
    case S_BODY:
        return step_body(p);
    case S_SECTION:
        return step_section(p);
    case S_HEAD:
        return step_head(p);
    case S_ARGUMENTS:
        return step_arguments(p);
    case S_OBJECT:
        return step_object(p);
    case S_KEYED:
        return step_keyed(p);
    case S_KEY:
        return step_key(p);
    case S_VALUE:
        return step_value(p);
    case S_LITERAL:
        return step_literal(p);
    }
    return false;
}

static void forget_told(chat_parser *p) {
    size_t done = MIN(p->mark, p->at);
    memmove(p->in.data, p->in.data + done, p->in.len - done);
    memmove(p->origin.data, p->origin.data + done, p->origin.len - done);
    p->in.len -= done;
    p->origin.len -= done;
    p->mark -= done;
    p->at -= done;
    p->resume -= MIN(done, p->resume);
}

static int state_of_memory(chat_parser *p) {
    const buf *bufs[] = {&p->in,         &p->origin,     &p->blanks,      &p->key,
                         &p->told,       &p->attributes, &p->object.word, &p->object.arguments,
                         &p->object.key, &p->object.id};
    for (size_t i = 0; i < COUNT_OF(bufs); i++) p->failed |= bufs[i]->failed;
    return p->failed ? ICP_ENOMEM : 0;
}

void chat_parser_clear(chat_parser *p) {
    buf_clear(&p->told);
    p->n_deltas = p->next_delta = 0;
}

/* Takes bytes of these origins: of the first, of the others. */
static int put(chat_parser *p, const char *text, size_t len, char first, char rest) {
    if (!len || p->failed) return state_of_memory(p);
    buf_put(&p->in, text, len);
    for (size_t i = 0; i < len; i++) buf_putc(&p->origin, i ? rest : first);
    TRY(state_of_memory(p));
    while (step(p) && !p->failed) {
    }
    forget_told(p);
    return state_of_memory(p);
}

int chat_parser_put(chat_parser *p, const char *text, size_t len, enum chat_origin origin,
                    bool begins) {
    char rest = 0;
    if (origin != CHAT_ORDINARY) rest |= ORIGIN_GOES_ON;
    if (origin == CHAT_CONTROL) rest |= ORIGIN_CONTROL;
    return put(p, text, len, rest && begins ? (char)(rest | ORIGIN_BEGINS) : rest, rest);
}

/* Ends what is open; true: text became free that must be read again. */
static bool end_state(chat_parser *p) {
    if (p->in_call) {
        call_end(p);
        return false;
    }
    if (p->region) return region_give_up(p);
    if (p->state == S_TEXT && !p->thinking)
        chat_tell(p, ICP_CHAT_CONTENT, p->blanks.data, p->blanks.len);
    buf_clear(&p->blanks);
    return false;
}

int chat_parser_finish(chat_parser *p) {
    p->ending = true;
    do {
        while (step(p) && !p->failed) {
        }
    } while (!p->failed && end_state(p));
    return state_of_memory(p);
}

/* ---- where the prompt stops ----------------------------------------------------------------- */

static size_t without_blanks(const char *text, size_t len) {
    while (len && is_blank(text[len - 1])) len--;
    return len;
}

static bool ends_with(const char *text, size_t len, const char *end) {
    size_t n = without_blanks(end, strlen(end));
    return n && len >= n && !memcmp(text + len - n, end, n);
}

/* The template's own text, which may be any marker. */
static int put_trusted(chat_parser *p, const char *text, size_t len) {
    const char any = ORIGIN_GOES_ON | ORIGIN_BEGINS | ORIGIN_CONTROL;
    return put(p, text, len, any, any);
}

int chat_parser_begin(chat_parser *p, const char *text, size_t len) {
    return put_trusted(p, text, len);
}

int chat_parser_prompt(chat_parser *p, const char *text, size_t len) {
    if (p->channels) {
        const char *start = p->channels->start, *header = NULL;
        size_t n = strlen(start);
        for (size_t i = 0; i + n <= len; i++)
            if (!memcmp(text + i, start, n)) header = text + i + n;
        return header ? put_trusted(p, header, (size_t)(text + len - header)) : 0;
    }
    const char *call = p->tools ? p->calls->call : NULL;
    len = without_blanks(text, len);
    if (p->reasoning && ends_with(text, len, p->reasoning->open))
        enter_text(p, true);
    else if (call && ends_with(text, len, call))
        return put_trusted(p, call, strlen(call));
    return 0;
}

bool chat_parser_thinking(const chat_parser *p) {
    return p->state == S_TEXT && p->thinking;
}
