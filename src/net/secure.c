/* secure.c - see secure.h. The only file that knows OpenSSL's names. */
#include "net/secure.h"

#include <stdio.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include "base/mem.h"

#define IDENTITY "manta/1 " /* then the node that connects, a space, and the node it means */

static const unsigned char session_context[] = {'m', 'a', 'n', 't', 'a'};

struct secure_context {
    SSL_CTX *ssl;
    BIO_METHOD *bio;
    cluster_key *key; /* key_hold()'s */
    char own[SECURE_NODE];
};

struct secure {
    secure_context *c;
    SSL *ssl;
    secure_io io;
    bool server, done, closed;
    bool known; /* server: the identity is one that we answer */
    char peer[SECURE_NODE];
    char identity[sizeof IDENTITY + 2 * SECURE_NODE];
    const char *refusal; /* server: why the identity is none that we answer */
};

bool secure_node_ok(const char *name)
{
    size_t n = strlen(name);

    if (n == 0 || n >= SECURE_NODE) return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && !strchr("._:/-", c)) return false;
    }
    return true;
}

/* ---- keys ---- */

/* HKDF-SHA256 of the cluster key for connections of `client` to `server`. */
static bool derive_secret(const cluster_key *key, const char *client, const char *server,
                          unsigned char out[32])
{
    char info[32 + 2 * SECURE_NODE], digest[] = "SHA256";
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *c = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    int n = snprintf(info, sizeof info, "manta tls 1.3 psk %s %s", client, server);
    unsigned char bytes[KEY_SIZE];
    bool ok;

    memcpy(bytes, key->bytes, sizeof bytes);
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                           OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, bytes, sizeof bytes),
                           OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, (size_t)n),
                           OSSL_PARAM_construct_end()};
    ok = c && EVP_KDF_derive(c, out, 32, params) > 0;
    OPENSSL_cleanse(bytes, sizeof bytes);
    EVP_KDF_CTX_free(c);
    EVP_KDF_free(kdf);
    return ok;
}

static SSL_SESSION *session_of(secure *s, const char *client, const char *server)
{
    static const unsigned char aes128_sha256[2] = {0x13, 0x01};
    const SSL_CIPHER *cipher = SSL_CIPHER_find(s->ssl, aes128_sha256);
    SSL_SESSION *session = SSL_SESSION_new();
    unsigned char psk[32];
    bool ok = cipher && session && derive_secret(s->c->key, client, server, psk) &&
              SSL_SESSION_set1_master_key(session, psk, sizeof psk) &&
              SSL_SESSION_set1_id_context(session, session_context, sizeof session_context) &&
              SSL_SESSION_set_cipher(session, cipher) &&
              SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION);

    OPENSSL_cleanse(psk, sizeof psk);
    if (ok) return session;
    SSL_SESSION_free(session);
    return NULL;
}

/* The connecting side: says who it is and whom it means. */
static int use_session(SSL *ssl, const EVP_MD *md, const unsigned char **id, size_t *n, SSL_SESSION **out)
{
    secure *s = SSL_get_app_data(ssl);

    (void)md; /* one cipher suite, one hash */
    *out = session_of(s, s->c->own, s->peer);
    *id = (const unsigned char *)s->identity;
    *n = strlen(s->identity);
    return *out != NULL;
}

/* Takes an identity apart; says why it is none of ours. */
static const char *read_identity(const secure_context *c, const unsigned char *id, size_t n, char *client)
{
    char text[sizeof IDENTITY + 2 * SECURE_NODE], *space;

    if (n >= sizeof text || n < sizeof IDENTITY || memchr(id, 0, n) || memcmp(id, IDENTITY, strlen(IDENTITY)))
        return "it does not speak Manta's protocol, or another version of it";
    memcpy(text, id, n);
    text[n] = '\0';
    space = strchr(text + strlen(IDENTITY), ' ');
    if (!space) return "it does not say who it is";
    *space = '\0';
    if (!secure_node_ok(text + strlen(IDENTITY)) || !secure_node_ok(space + 1))
        return "it does not say who it is";
    if (strcmp(space + 1, c->own)) return "it means another node";
    if (!strcmp(text + strlen(IDENTITY), c->own)) return "it claims to be this very node";
    memcpy(client, text + strlen(IDENTITY), strlen(text + strlen(IDENTITY)) + 1);
    return NULL;
}

/* The listening side. No session: the handshake cannot succeed. */
static int find_session(SSL *ssl, const unsigned char *id, size_t n, SSL_SESSION **out)
{
    secure *s = SSL_get_app_data(ssl);

    *out = NULL;
    s->known = false;
    s->refusal = read_identity(s->c, id, n, s->peer);
    if (s->refusal) return 1;
    *out = session_of(s, s->peer, s->c->own);
    s->known = *out != NULL;
    return s->known;
}

/* ---- bytes ---- */

static int bio_write(BIO *b, const char *data, int n)
{
    secure *s = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    if (n > 0) s->io.push(s->io.ctx, data, (size_t)n);
    return n;
}

static int bio_read(BIO *b, char *out, int n)
{
    secure *s = BIO_get_data(b);
    ssize_t got;

    BIO_clear_retry_flags(b);
    if (n <= 0) return 0;
    got = s->io.pull(s->io.ctx, out, (size_t)n);
    if (got < 0) BIO_set_retry_read(b);
    if (got == 0) s->closed = true;
    return (int)got;
}

static long bio_ctrl(BIO *b, int command, long x, void *p)
{
    (void)b;
    (void)x;
    (void)p;

    return command == BIO_CTRL_FLUSH;
}

/* ---- life ---- */

static manta_status fail_tls(const char *what)
{
    unsigned long e = ERR_peek_last_error();
    const char *why = e ? ERR_reason_error_string(e) : NULL;
    manta_status st = manta_fail(MANTA_EINTERNAL, "%s: %s", what, why ? why : "OpenSSL failed");

    ERR_clear_error();
    return st;
}

static bool configure_tls(SSL_CTX *ssl)
{
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_clear_options(ssl, SSL_OP_ENABLE_MIDDLEBOX_COMPAT); /* every byte counts */
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* of certificates: there are none, so none passes */
    SSL_CTX_set_psk_use_session_callback(ssl, use_session);
    SSL_CTX_set_psk_find_session_callback(ssl, find_session);
    return SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) &&
           SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) &&
           SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256") &&
           SSL_CTX_set1_groups_list(ssl, "X25519") && SSL_CTX_set_num_tickets(ssl, 0) &&
           SSL_CTX_set_session_id_context(ssl, session_context, sizeof session_context) &&
           SSL_CTX_set_max_early_data(ssl, 0);
}

manta_status secure_context_new(const cluster_key *key, const char *own, secure_context **out)
{
    secure_context *c;
    manta_status st;

    if (!secure_node_ok(own)) return manta_fail(MANTA_EINVAL, "\"%s\" cannot be the name of a node", own);
    c = mem_new(sizeof *c);
    if ((st = key_hold(key, &c->key))) {
        mem_free(c);
        return st;
    }
    memcpy(c->own, own, strlen(own) + 1);
    c->ssl = SSL_CTX_new(TLS_method());
    c->bio = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "manta");
    if (!c->ssl || !c->bio || !configure_tls(c->ssl) || !BIO_meth_set_write(c->bio, bio_write) ||
        !BIO_meth_set_read(c->bio, bio_read) || !BIO_meth_set_ctrl(c->bio, bio_ctrl)) {
        secure_context_free(c);
        return fail_tls("preparing TLS");
    }
    *out = c;
    return MANTA_OK;
}

void secure_context_free(secure_context *c)
{
    if (!c) return;
    SSL_CTX_free(c->ssl);
    BIO_meth_free(c->bio);
    key_drop(c->key);
    mem_free(c);
}

manta_status secure_new(secure_context *c, const char *peer, secure_io io, secure **out)
{
    secure *s;
    BIO *b;

    if (peer && !secure_node_ok(peer))
        return manta_fail(MANTA_EINVAL, "\"%s\" cannot be the name of a node", peer);
    if (peer && !strcmp(peer, c->own)) return manta_fail(MANTA_EINVAL, "node %s connects to itself", peer);
    s = mem_new(sizeof *s);
    *s = (secure){.c = c, .io = io, .server = !peer};
    if (peer) {
        memcpy(s->peer, peer, strlen(peer) + 1);
        snprintf(s->identity, sizeof s->identity, IDENTITY "%s %s", c->own, peer);
    }
    s->ssl = SSL_new(c->ssl);
    b = s->ssl ? BIO_new(c->bio) : NULL;
    if (!b) {
        secure_free(s);
        return fail_tls("making a TLS connection");
    }
    BIO_set_data(b, s);
    BIO_set_init(b, 1);
    SSL_set_bio(s->ssl, b, b);
    SSL_set_app_data(s->ssl, s);
    if (s->server) {
        SSL_set_accept_state(s->ssl);
    } else {
        SSL_set_connect_state(s->ssl);
    }
    *out = s;
    return MANTA_OK;
}

void secure_free(secure *s)
{
    if (!s) return;
    SSL_free(s->ssl);
    mem_free(s);
}

/* ---- the handshake ---- */

static manta_status fail_handshake(secure *s)
{
    ERR_clear_error();
    if (s->closed) {
        return manta_fail(MANTA_EDIED, "%s",
                          s->server ? "it left before it had shown the cluster key"
                                    : "it closed the connection without an answer: it has another cluster "
                                      "key, is another node, or is being restarted");
    }
    if (!s->server) return manta_fail(MANTA_EPERM, "it has not shown the cluster key");
    if (s->refusal) return manta_fail(MANTA_EPERM, "%s", s->refusal);
    return manta_fail(MANTA_EPERM, "%s",
                      s->known ? "it has another cluster key" : "it does not show a cluster key");
}

manta_status secure_handshake(secure *s)
{
    int rc;

    if (s->done) return MANTA_OK;
    ERR_clear_error();
    rc = SSL_do_handshake(s->ssl);
    if (rc == 1) {
        if (!SSL_session_reused(s->ssl)) return fail_handshake(s);
        s->done = true;
        return MANTA_OK;
    }
    if (SSL_get_error(s->ssl, rc) != SSL_ERROR_WANT_READ || s->closed) return fail_handshake(s);
    /* The listening side has answered a first message that shows no key (OpenSSL
     * would go on to ask for another key share): no reason to go on. */
    if (s->server && SSL_get_state(s->ssl) != TLS_ST_BEFORE && !SSL_session_reused(s->ssl) &&
        SSL_get_state(s->ssl) != TLS_ST_SR_CLNT_HELLO)
        return fail_handshake(s);
    return MANTA_EBUSY;
}

bool secure_proven(const secure *s)
{
    return s->done || !s->server || (s->known && SSL_session_reused(s->ssl));
}

const char *secure_peer(const secure *s)
{
    return s->peer;
}

/* ---- data ---- */

manta_status secure_write(secure *s, const void *data, size_t n)
{
    size_t done = 0, written;

    while (done < n) {
        ERR_clear_error();
        if (!SSL_write_ex(s->ssl, (const char *)data + done, n - done, &written))
            return fail_tls("encrypting a message");
        done += written;
    }
    return MANTA_OK;
}

manta_status secure_read(secure *s, void *out, size_t n, size_t *got)
{
    *got = 0;
    ERR_clear_error();
    if (SSL_read_ex(s->ssl, out, n, got)) return MANTA_OK;
    switch (SSL_get_error(s->ssl, 0)) {
    case SSL_ERROR_WANT_READ:
        if (s->closed) break;
        return MANTA_EBUSY;
    case SSL_ERROR_SSL:
        if (s->closed) break;
        ERR_clear_error();
        return manta_fail(MANTA_ECORRUPT, "bytes arrived that are not what was sent");
    default: break;
    }
    ERR_clear_error();
    return manta_fail(MANTA_EDIED, "the connection was closed");
}

bool secure_pending(const secure *s)
{
    return s->done && SSL_pending(s->ssl) > 0;
}
