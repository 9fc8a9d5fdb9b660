/* Jinja against Jinja2 itself (golden/jinja/make.py): equal text, or both raise. */
#include "base.h"
#include "cmocka_tests.h"
#include "text.h"

#include <dirent.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOW = 1700000000 }; /* of golden/jinja/oracle.py */

static struct json_object *read_json(const char *path) {
    struct json_object *o = json_object_from_file(path);
    if (!o) fail_msg("%s: %s", path, json_util_get_last_err());
    return o;
}

static const char *compact(struct json_object *o) {
    return json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN);
}

static bool same(const jinja_text *got, struct json_object *want) {
    size_t len = (size_t)json_object_get_string_len(want);
    return got->text.len == len && got->origin.len == len &&
           (len == 0 || memcmp(got->text.data, json_object_get_string(want), len) == 0);
}

/* row: group, template, text or null. */
static bool check_case(struct json_object *row, const char *vars) {
    struct json_object *source = json_object_array_get_idx(row, 1);
    struct json_object *want = json_object_array_get_idx(row, 2);
    icp_error err = {0};
    jinja *j = NULL;
    jinja_text got = {0};
    int rc = jinja_open(json_object_get_string(source), (size_t)json_object_get_string_len(source),
                        &j, &err);
    if (rc == 0) rc = jinja_render(j, vars, NULL, NOW, NULL, &got, &err);
    bool right = want ? rc == 0 && same(&got, want) : rc < 0 && err.code == rc && *err.text;
    if (!right)
        print_error("%s: %s\n  want: %s\n  got:  %s\n",
                    json_object_get_string(json_object_array_get_idx(row, 0)),
                    json_object_get_string(source),
                    want ? json_object_get_string(want) : "(raises)",
                    rc             ? err.text
                    : got.text.len ? got.text.data
                                   : "");
    jinja_text_fini(&got);
    jinja_close(&j);
    return right;
}

static void test_cases(void **state) {
    struct json_object *table = read_json(GOLDEN_DIR "/jinja/cases.json");
    char *vars = strdup(compact(json_object_array_get_idx(table, 0)));
    size_t n = json_object_array_length(table), wrong = 0;
    assert_true(n > 1000);
    for (size_t i = 1; i < n; i++) wrong += !check_case(json_object_array_get_idx(table, i), vars);
    assert_int_equal(wrong, 0);
    free(vars);
    json_object_put(table);
}

/* ---- templates of real models, when there is a folder of them ---- */

static char *read_file(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    *len = (size_t)ftell(f);
    rewind(f);
    text = malloc(*len + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *len, f), *len);
    fclose(f);
    return text;
}

/* Parses, and renders a plain conversation or raises with a sentence. */
static void check_template(const char *path) {
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"},{\"role\":\"assistant\","
        "\"content\":\"Hi\"},{\"role\":\"user\",\"content\":\"Bye\"}],\"tools\":null,"
        "\"documents\":null,\"add_generation_prompt\":true}";
    size_t len;
    char *source = read_file(path, &len);
    icp_error err = {0};
    jinja *j = NULL;
    jinja_text got = {0};
    if (jinja_open(source, len, &j, &err) < 0) fail_msg("%s: %s", path, err.text);
    int rc = jinja_render(j, chat, "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", NOW, NULL,
                          &got, &err);
    if (rc < 0 ? rc != ICP_EINVALID : got.text.len == 0) fail_msg("%s: %s", path, err.text);
    jinja_text_fini(&got);
    jinja_close(&j);
    free(source);
}

static void test_folder(void **state) {
    const char *folder = getenv("INCIPIT_TEMPLATE_DIR");
    if (!folder) skip();
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[4096];
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 6, ".jinja") != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        check_template(path);
    }
    closedir(dir);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
