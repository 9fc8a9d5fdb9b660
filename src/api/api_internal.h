/* api_internal: what the files of api share: the insides of the public handles. */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H

#include <pthread.h>

#include "base.h"
#include "chat.h"
#include "engine.h"
#include "gguf.h"
#include "grammar.h"
#include "incipit.h"
#include "kern.h"
#include "model.h"
#include "text.h"

struct icp_model {
    pool *pool;
    model *model; /* NULL when only the vocabulary was opened */
    tokenizer *tok;
    jinja *chat; /* NULL without a template */
    char *template_source;
    int64_t template_time; /* 0: the clock's */
    char *rank_template;   /* how a query and a document are put to a model that ranks; or NULL */
    chat_style style;
    icp_chat_caps caps;
    icp_error template_error; /* why there is no `chat` although the file has a template */
    icp_model_info info;
    pthread_mutex_t grammar_lock;
    grammar_vocab *grammar_vocab; /* made for the first grammar */
    grammar_vocab *calls_vocab;   /* and for the first one of calls: with tokens of their marks */
    icp_adapter *adapters;        /* n_adapters, with paths of their own, */
    float *scales;                /* and their scales */
    size_t n_adapters;
    char arch[64], name[256];
};

struct icp_engine {
    engine *engine;
};

/* Tokenizes as tokenizer_encode does. */
int api_encode(const icp_model *m, const char *text, size_t len, const uint8_t *origin,
               unsigned flags, icp_tokens *out, icp_error *err);
void api_free_grammars(icp_model *m);
/* Sets rank_template. ICP_EFORMAT, ICP_ENOMEM. */
int api_open_rank_template(icp_model *m, const gguf *g, icp_error *err);
/* Whether text[len] is a special token of the model (arg). */
bool api_is_special(void *arg, const char *text, size_t len);
/* The tokens at whose ends marks of the text stand, as far as the tokens spell it (api_marks.c). */
void api_place_marks(const icp_model *m, const buf *text, const icp_tokens *ids,
                     const chat_marks *marks, icp_marks *out);
/* Sets style and caps, from the template. ICP_ENOMEM. */
int api_probe_chat(icp_model *m);

#endif
