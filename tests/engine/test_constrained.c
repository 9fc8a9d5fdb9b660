/* Completions that follow a grammar, through the whole engine: the fake model knows nothing of
 * JSON, so whatever comes out right is the grammar's doing. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <regex.h>

#include "bed.h"
#include "grammar.h"

static bed b;
static grammar_vocab *vocab;

/* What the tokens of the bed print as: bytes, and " w12". */
static void open_vocab(void) {
    grammar_str tokens[FAKE_VOCAB] = {{0}};
    for (int32_t id = BED_BYTES; id < FAKE_VOCAB; id++) {
        text_str text = tokenizer_bytes(b.tok, id);
        tokens[id] = (grammar_str){text.data, text.len};
    }
    assert_int_equal(grammar_vocab_new(tokens, FAKE_VOCAB, &vocab), 0);
}

static int start(void **state) {
    bed_open(&b, (engine_opts){0});
    open_vocab();
    return 0;
}

static int stop(void **state) {
    bed_close(&b);
    grammar_vocab_unref(&vocab);
    return 0;
}

static icp_grammar *regex(const char *text) {
    grammar *g = NULL;
    icp_error err;
    assert_int_equal(grammar_from_regex(vocab, text, strlen(text), NULL, &g, &err), 0);
    return (icp_grammar *)g;
}

static void release(icp_grammar *g) {
    grammar *inner = (grammar *)g;
    grammar_unref(&inner);
}

enum { PROMPT = 60 };
static int32_t prompt[PROMPT];

static icp_request_opts wish(icp_grammar *g, uint64_t seed) {
    bed_prompt(prompt, PROMPT, 0, (unsigned)seed);
    icp_request_opts o = bed_greedy(prompt, PROMPT, 100);
    o.grammar = g;
    o.temperature = 1;
    o.seed = seed;
    o.ignore_eos = false;
    return o;
}

static bool matches(const char *text, const char *pattern) {
    regex_t compiled;
    char whole[256];
    snprintf(whole, sizeof whole, "^(%s)$", pattern);
    assert_int_equal(regcomp(&compiled, whole, REG_EXTENDED), 0);
    bool found = regexec(&compiled, text, 0, NULL, 0) == 0;
    regfree(&compiled);
    return found;
}

static void texts_follow(void **state) {
    static const char *const patterns[] = {"[a-c]{3}",       "x(yz)*!",          "(ab|cd){2,4}",
                                           " w1[0-9]( w2)+", "[0-9]+-[0-9]+\\.", " leading"};
    for (size_t i = 0; i < COUNT_OF(patterns); i++) {
        icp_grammar *g = regex(patterns[i]);
        for (uint64_t seed = 0; seed < 5; seed++) {
            icp_request_opts o = wish(g, seed);
            o.n = 3;
            result r = bed_run(&b, &o);
            assert_int_equal(r.error, 0);
            for (int c = 0; c < o.n; c++) {
                const outcome *one = &r.choice[c];
                assert_true(one->finish == ICP_FINISH_STOP || one->finish == ICP_FINISH_LENGTH);
                if (one->finish == ICP_FINISH_STOP && !matches(one->text.data, patterns[i]))
                    fail_msg("%s: \"%s\"", patterns[i], one->text.data);
            }
            result_fini(&r);
        }
        release(g);
    }
}

/* The text ends where nothing may follow, with no end token; else with one, and only there. */
static void ends_where_it_must(void **state) {
    icp_grammar *g = regex("[a-z]{4}");
    icp_request_opts o = wish(g, 1);
    result r = bed_run(&b, &o);
    assert_int_equal(r.choice[0].n, 4);
    assert_int_equal(r.choice[0].finish, ICP_FINISH_STOP);
    result_fini(&r);
    release(g);
    g = regex("ab(c|d)?");
    icp_logit_bias end = {BED_EOS, 1000};
    o = wish(g, 1);
    o.bias = &end;
    o.n_bias = 1;
    r = bed_run(&b, &o);
    assert_int_equal(r.choice[0].n, 3);
    assert_int_equal(r.choice[0].token[2], BED_EOS);
    assert_string_equal(r.choice[0].text.data, "ab");
    result_fini(&r);
    o.min_tokens = 10; /* the grammar ends it all the same */
    r = bed_run(&b, &o);
    assert_int_equal(r.choice[0].n, 3);
    assert_int_equal(r.choice[0].finish, ICP_FINISH_STOP);
    result_fini(&r);
    release(g);
}

static void says_when_it_is_stuck(void **state) {
    icp_grammar *g = regex("ab");
    icp_logit_bias ban = {BED_BYTES + 'b', -100};
    icp_request_opts o = wish(g, 1);
    o.bias = &ban;
    o.n_bias = 1;
    result r = bed_run(&b, &o);
    assert_int_equal(r.error, 0);
    assert_int_equal(r.choice[0].n, 1);
    assert_int_equal(r.choice[0].finish, ICP_FINISH_STUCK);
    assert_string_equal(r.choice[0].text.data, "a");
    result_fini(&r);
    release(g);
}

static void stops_and_limits_work_too(void **state) {
    icp_grammar *g = regex("[ab]*");
    static const char *const stops[] = {"ba"};
    icp_request_opts o = wish(g, 3);
    o.ignore_eos = true;
    o.stop = stops;
    o.n_stop = 1;
    result r = bed_run(&b, &o);
    assert_int_equal(r.choice[0].finish, ICP_FINISH_STOP_STRING);
    assert_null(strstr(r.choice[0].text.data, "ba"));
    result_fini(&r);
    o.n_stop = 0;
    o.max_tokens = 17;
    r = bed_run(&b, &o);
    assert_int_equal(r.choice[0].finish, ICP_FINISH_LENGTH);
    assert_int_equal(strspn(r.choice[0].text.data, "ab"), 17);
    result_fini(&r);
    int32_t stop = BED_BYTES + '!'; /* not of the grammar, yet an end */
    o = wish(g, 3);
    o.stop_tokens = &stop;
    o.n_stop_tokens = 1;
    icp_logit_bias end = {stop, 1000};
    o.bias = &end;
    o.n_bias = 1;
    r = bed_run(&b, &o);
    assert_int_equal(r.choice[0].n, 1);
    assert_int_equal(r.choice[0].finish, ICP_FINISH_STOP);
    result_fini(&r);
    release(g);
}

/* Greedy and drawn alike, a text depends on its request alone: not on others, not on preemption. */
static atomic_bool all_are_there;

/* Keeps the engine's thread until all requests have come. */
static void wait_for_all(void *arg, size_t position, const float *row, size_t n_vocab) {
    while (!all_are_there) sched_yield();
}

static void company_changes_nothing(void **state) {
    enum { REQUESTS = 12 };
    bed small;
    bed_open(&small, (engine_opts){.cache_limit = BED_SMALL + 27000});
    icp_grammar *g = regex("([a-f]{2} ){20}\\.");
    result alone[REQUESTS];
    request *together[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        icp_request_opts o = wish(g, (uint64_t)i);
        alone[i] = bed_run(&b, &o);
    }
    icp_request_opts first = bed_greedy(prompt, 1, 0);
    first.on_logits = wait_for_all;
    request *gate = bed_submit(&small, &first);
    for (int i = 0; i < REQUESTS; i++) {
        icp_request_opts o = wish(g, (uint64_t)i);
        together[i] = bed_submit(&small, &o);
    }
    all_are_there = true;
    result opened = bed_finish(&gate, 1);
    result_fini(&opened);
    release(g); /* requests refer to it */
    for (int i = 0; i < REQUESTS; i++) {
        result r = bed_finish(&together[i], 1);
        assert_string_equal(r.choice[0].text.data, alone[i].choice[0].text.data);
        assert_int_equal(r.choice[0].n, alone[i].choice[0].n);
        result_fini(&r);
        result_fini(&alone[i]);
    }
    icp_stats stats;
    engine_get_stats(small.engine, &stats);
    assert_true(stats.preemptions > 0);
    bed_close(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_follow),
        cmocka_unit_test(ends_where_it_must),
        cmocka_unit_test(says_when_it_is_stuck),
        cmocka_unit_test(stops_and_limits_work_too),
        cmocka_unit_test(company_changes_nothing),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
