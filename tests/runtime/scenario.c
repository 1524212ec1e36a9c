/* scenario.c - see scenario.h. */
#include "scenario.h"

#include <errno.h>

#include <manta/context.h>
#include <manta/failure.h>
#include <manta/nursery.h>

#include "temp.h"

bool inside;
char folder[64];

double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

manta_failure failure_of(manta_ref r)
{
    manta_failure f;

    manta_failure_get(r, &f);
    return f;
}

double available(const char *resource)
{
    manta_node_info n;

    OK(manta_node_get(&n));
    for (int i = 0; i < n.n_resources; i++)
        if (!strcmp(n.resources[i].name, resource)) return n.resources[i].available;
    CHECK(resource == NULL); /* there is none of that name */
    return 0;
}

void folder_make(void)
{
    CHECK(temp_folder(folder, sizeof folder, "/tmp", "runtime"));
}

void folder_remove(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK(system(command) == 0);
}

const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

manta_status touch(const char *path)
{
    FILE *f = fopen(path, "w");

    return f && !fclose(f) ? MANTA_OK : manta_fail(MANTA_EIO, "%s: %s", path, strerror(errno));
}

void until_there(const char *name)
{
    double begin = now();

    while (access(path_of(name), F_OK) && now() - begin < LONG / 1000) usleep(200);
    CHECK(access(path_of(name), F_OK) == 0);
}

void until_nothing_is_held(void)
{
    double begin = now();
    manta_node_info info;

    do {
        OK(manta_node_get(&info));
        CHECK(now() - begin < LONG / 1000);
    } while (info.objects > 0);
}

int scenario_main(int argc, char **argv, const scenario *all, size_t n)
{
    const char *name = argc > 1 ? argv[1] : "";
    char self[4096] = "";
    const char *const nursery[] = {self, "nursery", NULL};

    if (!strcmp(name, "nursery")) {
        manta_status st = manta_nursery_run();
        fprintf(stderr, "%s: %s\n", manta_status_name(st), manta_error_text());
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        if (strcmp(all[i].name, name)) continue;
        manta_node_options o = all[i].node ? *all[i].node : (manta_node_options){0};
        /* Not a node that somebody has started on this machine, neither now nor in a scenario that begins again. */
        CHECK(getenv("MANTA_ADDRESS") || setenv("MANTA_ADDRESS", "local", 1) == 0);
        inside = o.in_process = argc > 2 && !strcmp(argv[2], "inside");
        CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
        if (getenv("NURSERY") || (argc > 2 && !strcmp(argv[2], "nursery"))) o.nursery = nursery;
        OK(manta_init(&argc, &argv, &o));
        all[i].run();
        manta_shutdown();
        printf("%s: all is well\n", name);
        return 0;
    }
    fprintf(stderr, "no scenario is called %s\n", name);
    return 2;
}
