/* curl.c - see curl.h. */
#include "web/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define LIBRARY "libcurl.so.4"

static curl_table table;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static manta_error failure; /* why there is no table; code 0: there is one */

static manta_status load_function(void *from, const char *name, void *to)
{
    void *at = dlsym(from, name);

    if (!at)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "servers are asked by libcurl, and " LIBRARY
                          " of this machine has no %s: expected 7.85 or newer",
                          name);
    memcpy(to, &at, sizeof at);
    return MANTA_OK;
}

/* The library stays until the program ends. */
static manta_status load_library(void)
{
    void *from = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (!from)
        return manta_fail(MANTA_EUNSUPPORTED,
                          "servers are asked by libcurl, which cannot be loaded (%s); expected the package "
                          "libcurl4",
                          dlerror());
#define LOAD(f) TRY(load_function(from, #f, &table.f));
    CURL_FUNCTIONS(LOAD)
#undef LOAD
    if (table.curl_global_init(CURL_GLOBAL_DEFAULT))
        return manta_fail(MANTA_EUNSUPPORTED, "libcurl could not be started");
    return MANTA_OK;
}

static void load_once(void)
{
    if (load_library()) manta_error_get(&failure);
}

manta_status curl_table_get(const curl_table **out)
{
    pthread_once(&once, load_once);
    if (failure.code) return manta_error_raise(&failure);
    *out = &table;
    return MANTA_OK;
}
