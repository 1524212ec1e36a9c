/* web/curl.h - libcurl, opened when it is first needed.
 *
 * Thirty libraries come with it, and most programs never ask a server. A function is
 * called through the table, under its own name: lib->curl_easy_init().
 *
 * Threads: any. */
#ifndef WEB_CURL_H
#define WEB_CURL_H

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#include "base/status.h"

#define CURL_FUNCTIONS(F)                                                                                    \
    F(curl_global_init)                                                                                      \
    F(curl_easy_init)                                                                                        \
    F(curl_easy_setopt)                                                                                      \
    F(curl_easy_perform)                                                                                     \
    F(curl_easy_getinfo)                                                                                     \
    F(curl_easy_strerror)                                                                                    \
    F(curl_easy_cleanup)                                                                                     \
    F(curl_slist_append)                                                                                     \
    F(curl_slist_free_all)                                                                                   \
    F(curl_multi_init)                                                                                       \
    F(curl_multi_add_handle)                                                                                 \
    F(curl_multi_remove_handle)                                                                              \
    F(curl_multi_perform)                                                                                    \
    F(curl_multi_poll)                                                                                       \
    F(curl_multi_info_read)                                                                                  \
    F(curl_multi_cleanup)

#define CURL_FIELD(f) __typeof__(&(f)) f;
typedef struct curl_table {
    CURL_FUNCTIONS(CURL_FIELD)
} curl_table;
#undef CURL_FIELD

/* Delivers the table. *out: borrowed, for good. MANTA_EUNSUPPORTED there is no libcurl on
 * this machine, with the package that has it. */
manta_status curl_table_get(const curl_table **out) MANTA_MUST_USE;

#endif
