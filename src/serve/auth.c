/* Who may call: API keys and their tenants, origins of web pages, names of this machine.
 *
 * Keys live as SHA-256 digests. A presented key is hashed and compared with every digest in
 * constant time, so neither its length nor how much of it is right can be measured. */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve_internal.h"

struct serve_key {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char *tenant;
};

/* ---- keys ------------------------------------------------------------------------------------ */

/* Stable over restarts, and says nothing about the key. */
static char *derive_tenant(const char *key) {
    static const char context[] = "incipit tenant ";
    buf text = {0};
    buf_puts(&text, context);
    buf_puts(&text, key);
    if (text.failed) return buf_fini(&text), NULL;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256((const unsigned char *)text.data, text.len, digest);
    OPENSSL_cleanse(text.data, text.len);
    buf_clear(&text);
    buf_puts(&text, "key-");
    for (int i = 0; i < 8; i++) buf_printf(&text, "%02x", digest[i]);
    if (text.failed) return buf_fini(&text), NULL;
    return text.data;
}

static bool is_word(const char *text) {
    if (!*text) return false;
    for (; *text; text++)
        if ((unsigned char)*text <= ' ' || *text == 0x7f) return false;
    return true;
}

int serve_keys_add(serve_keys *keys, const char *name, const char *key, icp_error *err) {
    if (!is_word(key) || (name && !is_word(name)))
        return error_set(err, ICP_EINVALID, "an API key or its name is empty or has blanks in it");
    struct serve_key *grown = mem_resize(keys->key, keys->n + 1, sizeof *grown);
    if (!grown) return error_set(err, ICP_ENOMEM, "out of memory");
    keys->key = grown;
    struct serve_key *added = &keys->key[keys->n];
    SHA256((const unsigned char *)key, strlen(key), added->digest);
    added->tenant = name ? mem_strdup(name) : derive_tenant(key);
    if (!added->tenant) return error_set(err, ICP_ENOMEM, "out of memory");
    keys->n++;
    return 0;
}

static int add_line(serve_keys *keys, char *line, icp_error *err) {
    char *rest, *first = strtok_r(line, " \t\r\n", &rest);
    if (!first || first[0] == '#') return 0;
    char *second = strtok_r(NULL, " \t\r\n", &rest);
    if (second && strtok_r(NULL, " \t\r\n", &rest))
        return error_set(err, ICP_EFORMAT, "more than a name and a key");
    return second ? serve_keys_add(keys, first, second, err)
                  : serve_keys_add(keys, NULL, first, err);
}

int serve_keys_read(serve_keys *keys, const char *path, icp_error *err) {
    FILE *file = fopen(path, "re");
    if (!file) return error_set(err, ICP_EIO, "API keys %s: %s", path, strerror(errno));
    char *line = NULL;
    size_t room = 0;
    int rc = 0;
    for (int number = 1; rc == 0 && getline(&line, &room, file) >= 0; number++) {
        icp_error why = {0};
        rc = add_line(keys, line, &why);
        if (rc < 0) error_set(err, rc, "API keys %s, line %d: %s", path, number, why.text);
    }
    if (rc == 0 && ferror(file)) rc = error_set(err, ICP_EIO, "API keys %s: cannot read", path);
    if (line) OPENSSL_cleanse(line, room);
    free(line);
    fclose(file);
    return rc;
}

void serve_keys_fini(serve_keys *keys) {
    for (size_t i = 0; i < keys->n; i++) mem_free(keys->key[i].tenant);
    mem_free(keys->key);
    *keys = (serve_keys){0};
}

const char *keys_find(const serve_keys *keys, const char *presented) {
    if (!keys || keys->n == 0) return "";
    unsigned char digest[SHA256_DIGEST_LENGTH];
    const char *text = presented ? presented : "";
    SHA256((const unsigned char *)text, strlen(text), digest);
    const char *tenant = NULL;
    for (size_t i = 0; i < keys->n; i++)
        if (CRYPTO_memcmp(digest, keys->key[i].digest, sizeof digest) == 0)
            tenant = keys->key[i].tenant;
    return tenant;
}

/* ---- origins and hosts ----------------------------------------------------------------------- */

/* The host of "host", "host:port", "[v6]" or "[v6]:port", without brackets. */
static bool split_host(const char *text, char *host, size_t size) {
    size_t len;
    if (*text == '[') {
        text++;
        len = strcspn(text, "]");
        if (text[len] != ']') return false;
    } else {
        len = strcspn(text, ":/");
    }
    if (len == 0 || len >= size) return false;
    memcpy(host, text, len);
    host[len] = 0;
    return true;
}

static bool is_localhost(const char *host) {
    static const char suffix[] = ".localhost";
    size_t len = strlen(host), tail = sizeof suffix - 1;
    return !strcasecmp(host, suffix + 1) || (len > tail && !strcasecmp(host + len - tail, suffix));
}

bool host_is_local(const char *text) {
    char host[256];
    struct in6_addr address;
    if (!split_host(text, host, sizeof host)) return false;
    /* A literal address is what the user typed: no name can have been rebound to it. */
    return is_localhost(host) || inet_pton(AF_INET, host, &address) == 1 ||
           inet_pton(AF_INET6, host, &address) == 1;
}

static bool origin_is_local(const char *origin) {
    const char *scheme_end = strstr(origin, "://");
    char host[256];
    if (!scheme_end || !split_host(scheme_end + 3, host, sizeof host)) return false;
    return is_localhost(host) || !strcmp(host, "127.0.0.1") || !strcmp(host, "::1");
}

bool origin_allowed(const char *cors, const char *origin) {
    if (!cors) return origin_is_local(origin);
    if (!strcmp(cors, "*")) return true;
    size_t len = strlen(origin);
    for (const char *item = cors; *item;) {
        size_t n = strcspn(item, ", ");
        if (n && n == len && !strncasecmp(item, origin, n)) return true;
        item += n;
        item += strspn(item, ", ");
    }
    return false;
}
