/* where_fuzz.c - the environment of a process: variables, apart by zero bytes; and a list of hosts. */
#include <manta/tool_launch.h>

#include "fuzz.h"
#include "launch/hostlist.h"

enum { MOST = 64 };

static void read_environment(const char *text, size_t size)
{
    const char *environment[MOST + 1];
    int n = 0;
    manta_where w;
    manta_status st;

    for (size_t i = 0; i < size && n < MOST; i += strlen(text + i) + 1) environment[n++] = text + i;
    environment[n] = NULL;
    st = manta_where_find(environment, &w);
    fuzz_expect(st);
    if (!st && (!w.launcher || !w.why || (w.size != MANTA_WHERE_UNKNOWN && w.rank >= w.size))) abort();
    if (!st && w.local_size != MANTA_WHERE_UNKNOWN && w.local_rank >= w.local_size) abort();
    manta_where_release(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    char *text = mem_new(size + 1), **hosts = NULL;
    int n = 0;
    manta_status st;

    if (size) memcpy(text, data, size);
    read_environment(text, size);
    st = hostlist_parse(text, &hosts, &n);
    fuzz_expect(st);
    for (int i = 0; i < n; i++) {
        if (!*hosts[i] || strlen(hosts[i]) > HOSTLIST_NAME) abort();
    }
    hostlist_free(hosts, n);
    mem_free(text);
    fuzz_balance(live);
    return 0;
}
