/* Keys, tenants, origins and hosts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "serve_internal.h"

static int read_text(serve_keys *keys, const char *text, icp_error *err) {
    char path[] = "/tmp/incipit-keys-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    int rc = serve_keys_read(keys, path, err);
    unlink(path);
    return rc;
}

static void finds_tenants(void **state) {
    serve_keys keys = {0};
    icp_error err = {0};
    assert_string_equal(keys_find(NULL, NULL), "");
    assert_string_equal(keys_find(&keys, "anything"), "");
    assert_int_equal(read_text(&keys, "# comment\n\nsk-one\n  alice sk-two \r\n", &err), 0);
    assert_int_equal(keys.n, 2);
    assert_string_equal(keys_find(&keys, "sk-two"), "alice");
    const char *derived = keys_find(&keys, "sk-one");
    assert_non_null(derived);
    /* sha256("incipit tenant sk-one"), as sha256sum prints it */
    assert_string_equal(derived, "key-7a58d5f35c25605e");
    assert_null(keys_find(&keys, "sk-on"));
    assert_null(keys_find(&keys, "sk-one "));
    assert_null(keys_find(&keys, ""));
    assert_null(keys_find(&keys, NULL));
    serve_keys_fini(&keys);
}

static void refuses_bad_keys(void **state) {
    serve_keys keys = {0};
    icp_error err = {0};
    assert_int_equal(read_text(&keys, "ok\na b c\n", &err), ICP_EFORMAT);
    assert_non_null(strstr(err.text, "line 2"));
    assert_null(strstr(err.text, "a b c"));
    assert_int_equal(serve_keys_add(&keys, NULL, "", &err), ICP_EINVALID);
    assert_int_equal(serve_keys_add(&keys, NULL, "with blank", &err), ICP_EINVALID);
    assert_int_equal(serve_keys_read(&keys, "/nonexistent/keys", &err), ICP_EIO);
    serve_keys_fini(&keys);
}

static void survives_failing_allocations(void **state) {
    for (long n = 0; n < 6; n++) {
        serve_keys keys = {0};
        mem_fail_after(n);
        int rc = serve_keys_add(&keys, NULL, "sk-one", NULL);
        if (rc == 0) rc = serve_keys_add(&keys, "bob", "sk-two", NULL);
        mem_fail_after(-1);
        if (rc == 0)
            assert_string_equal(keys_find(&keys, "sk-two"), "bob");
        else
            assert_int_equal(rc, ICP_ENOMEM);
        serve_keys_fini(&keys);
    }
}

static void allows_origins(void **state) {
    static const struct {
        const char *cors, *origin;
        bool allowed;
    } table[] = {
        {NULL, "http://localhost:3000", true},
        {NULL, "http://127.0.0.1", true},
        {NULL, "https://[::1]:8443", true},
        {NULL, "http://app.localhost", true},
        {NULL, "http://localhost.evil.com", false},
        {NULL, "http://evil.com", false},
        {NULL, "null", false},
        {"*", "http://evil.com", true},
        {"https://a.com, https://b.com", "https://b.com", true},
        {"https://a.com, https://b.com", "https://b.co", false},
        {"https://a.com", "http://localhost:3000", false},
        {"", "https://a.com", false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (origin_allowed(table[i].cors, table[i].origin) != table[i].allowed)
            fail_msg("%s", table[i].origin);
}

static void knows_local_hosts(void **state) {
    static const struct {
        const char *host;
        bool local;
    } table[] = {
        {"localhost", true},
        {"LOCALHOST:8080", true},
        {"127.0.0.1:80", true},
        {"[::1]:8080", true},
        {"192.168.1.4", true},
        {"my.localhost:1", true},
        {"evil.com", false},
        {"evil.com:8080", false},
        {"localhost.evil.com", false},
        {"127.0.0.1.nip.io", false},
        {"", false},
        {"[::1", false},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++)
        if (host_is_local(table[i].host) != table[i].local) fail_msg("%s", table[i].host);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_tenants),
        cmocka_unit_test(refuses_bad_keys),
        cmocka_unit_test(survives_failing_allocations),
        cmocka_unit_test(allows_origins),
        cmocka_unit_test(knows_local_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
