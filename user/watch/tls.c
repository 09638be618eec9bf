// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "user/watch/tls.h"

#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include "user/lib/library.h"

#define LIBRARY   "libevent_openssl-2.1.so.7" /* which has loaded OpenSSL, as it was built with it */
#define CHAIN_MAX 10                          /* certificates above the own one */

#define FUNCTIONS(X)                      \
	X(TLS_server_method)              \
	X(SSL_CTX_new)                    \
	X(SSL_CTX_free)                   \
	X(SSL_CTX_ctrl)                   \
	X(SSL_CTX_set_options)            \
	X(SSL_CTX_use_certificate)        \
	X(SSL_CTX_use_PrivateKey)         \
	X(SSL_CTX_check_private_key)      \
	X(SSL_new)                        \
	X(SSL_free)                       \
	X(BIO_new_mem_buf)                \
	X(BIO_free)                       \
	X(PEM_read_bio_X509)              \
	X(PEM_read_bio_PrivateKey)        \
	X(X509_free)                      \
	X(EVP_PKEY_free)                  \
	X(ERR_clear_error)                \
	X(ERR_peek_last_error)            \
	X(ERR_reason_error_string)        \
	X(bufferevent_openssl_socket_new) \
	X(bufferevent_openssl_set_allow_dirty_shutdown)

/* Written once, by tls__load. */
static struct {
#define X(name) __typeof__(name) *name;
	FUNCTIONS(X)
#undef X
} tls;

int tls__load(const char **why)
{
	static const struct library_function functions[] = {
#define X(name) {#name, (void **)&tls.name},
		FUNCTIONS(X)
#undef X
	};

	return library__load(LIBRARY, functions, sizeof(functions) / sizeof(*functions), why);
}

static const char *reason(const char *otherwise)
{
	unsigned long code = tls.ERR_peek_last_error();

	return (code ? tls.ERR_reason_error_string(code) : NULL) ?: otherwise;
}

/* A key that wants one is not usable: nobody is there to be asked. */
static int no_password(char *buffer, int size, int writes, void *ctx)
{
	return 0;
}

static const char *use_chain(SSL_CTX *context, BIO *pem)
{
	X509 *certificate = tls.PEM_read_bio_X509(pem, NULL, no_password, NULL);
	int used = certificate ? tls.SSL_CTX_use_certificate(context, certificate) : 0;

	tls.X509_free(certificate);
	if (!used)
		return reason("no certificate");
	for (int i = 0; i < CHAIN_MAX && (certificate = tls.PEM_read_bio_X509(pem, NULL, no_password, NULL)); i++)
		if (!tls.SSL_CTX_ctrl(context, SSL_CTRL_CHAIN_CERT, 0, certificate)) {
			tls.X509_free(certificate);
			return reason("no chain of certificates");
		}
	return NULL;
}

static const char *use_key(SSL_CTX *context, BIO *pem)
{
	EVP_PKEY *key = tls.PEM_read_bio_PrivateKey(pem, NULL, no_password, NULL);
	int used = key && tls.SSL_CTX_use_PrivateKey(context, key) && tls.SSL_CTX_check_private_key(context);

	tls.EVP_PKEY_free(key);
	return used ? NULL : reason("no private key");
}

struct ssl_ctx_st *tls__context(const char *chain, size_t chain_bytes, const char *key, size_t key_bytes,
				const char **why)
{
	SSL_CTX *context = tls.SSL_CTX_new(tls.TLS_server_method());
	BIO *chain_pem = tls.BIO_new_mem_buf(chain, (int)chain_bytes);
	BIO *key_pem = tls.BIO_new_mem_buf(key, (int)key_bytes);

	tls.ERR_clear_error();
	*why = "no memory";
	if (context && chain_pem && key_pem)
		*why = use_chain(context, chain_pem) ?: use_key(context, key_pem);
	tls.BIO_free(chain_pem);
	tls.BIO_free(key_pem);
	if (*why) {
		tls.SSL_CTX_free(context);
		return NULL;
	}
	tls.SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
	tls.SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
	tls.SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
	return context;
}

void tls__free(struct ssl_ctx_st *context)
{
	if (context)
		tls.SSL_CTX_free(context);
}

struct bufferevent *tls__accept(struct event_base *base, struct ssl_ctx_st *context)
{
	SSL *ssl = tls.SSL_new(context);
	struct bufferevent *connection = ssl ? tls.bufferevent_openssl_socket_new(
						       base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE)
					     : NULL;

	if (connection)
		tls.bufferevent_openssl_set_allow_dirty_shutdown(connection, 1);
	else if (ssl)
		tls.SSL_free(ssl);
	return connection;
}
