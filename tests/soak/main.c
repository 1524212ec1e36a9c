/* main.c - soak_runtime: programs over the runtime's interface, made from seeds, each
 * compared with a model; see README.md. */
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "supervise.h"

typedef struct options {
    uint64_t seed;
    int programs, seconds, deadline_s, times;
    int shrink_s, shrink_tries, shrink_deadline_s;
    const char *file, *keep;
    bool print_only, verbose;
} options;

static const char usage[] =
    "usage: soak_runtime [option...] [FILE]\n"
    "  --seed N         the first program's seed (1); the next ones follow\n"
    "  --programs N     how many (100)\n"
    "  --seconds N      begin no more after so long\n"
    "  --deadline N     seconds that a program may take (120)\n"
    "  --shrink N       seconds to make a program smaller that fails (300); 0: leave it\n"
    "  --tries N        runs of a smaller one (3), since failures may need luck\n"
    "  --hang N         seconds after which a smaller one counts as hung (15)\n"
    "  --keep FOLDER    write programs that fail there, SEED.txt and SEED-small.txt\n"
    "  --times N        run each so often (1)\n"
    "  --strict         what the runtime does not do better yet is wrong, too (README.md)\n"
    "  --print          print the programs and run none\n"
    "  --verbose        a line for each program\n"
    "  FILE             run the program in this file instead\n";

static bool parse(options *o, int argc, char **argv)
{
    static const struct option names[] = {
        {"seed", 1, NULL, 's'},     {"programs", 1, NULL, 'n'}, {"seconds", 1, NULL, 't'},
        {"deadline", 1, NULL, 'd'}, {"shrink", 1, NULL, 'S'},   {"tries", 1, NULL, 'r'},
        {"hang", 1, NULL, 'h'},     {"keep", 1, NULL, 'k'},     {"times", 1, NULL, 'x'},
        {"print", 0, NULL, 'p'},    {"verbose", 0, NULL, 'v'},  {"strict", 0, NULL, 'y'},
        {NULL, 0, NULL, 0}};
    int c;

    *o = (options){.seed = 1, .programs = 100, .deadline_s = 120, .times = 1};
    o->shrink_s = 300;
    o->shrink_tries = 3;
    o->shrink_deadline_s = 15;
    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (c) {
        case 's': o->seed = strtoull(optarg, NULL, 10); break;
        case 'n': o->programs = atoi(optarg); break;
        case 't': o->seconds = atoi(optarg); break;
        case 'd': o->deadline_s = atoi(optarg); break;
        case 'S': o->shrink_s = atoi(optarg); break;
        case 'r': o->shrink_tries = atoi(optarg); break;
        case 'h': o->shrink_deadline_s = atoi(optarg); break;
        case 'k': o->keep = optarg; break;
        case 'x': o->times = atoi(optarg); break;
        case 'y': soak_is_strict = true; break;
        case 'p': o->print_only = true; break;
        case 'v': o->verbose = true; break;
        default: return false;
        }
    }
    o->file = argv[optind];
    return true;
}

static void keep_program(const options *o, const char *name, const char *suffix, const soak_program *p,
                         const soak_report *r)
{
    char path[512], what[256];

    if (!o->keep) return;
    snprintf(path, sizeof path, "%s/%s%s.txt", o->keep, name, suffix);
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        return;
    }
    snprintf(what, sizeof what, "%.*s", (int)strcspn(r->what, "\n"), r->what);
    fprintf(f, "# %s\n", what);
    soak_program_print(p, f);
    fclose(f);
}

static void show_failure(const options *o, const char *name, soak_program *p, soak_report *r)
{
    printf("FAILED %s: %s", name, r->what);
    soak_program_print(p, stdout);
    fflush(stdout);
    keep_program(o, name, "", p, r);
    if (o->shrink_s <= 0) return;
    int runs = soak_shrink(p, o->shrink_s, o->shrink_tries, o->shrink_deadline_s, r);
    printf("smallest after %d runs: %s", runs, r->what);
    soak_program_print(p, stdout);
    fflush(stdout);
    keep_program(o, name, "-small", p, r);
}

/* Whether the program passes every time. */
static bool run_one(const options *o, const char *name, soak_program *p)
{
    soak_report r;

    for (int i = 0; i < o->times; i++) {
        soak_supervise(p, o->deadline_s, &r);
        if (o->verbose)
            printf("%s: %d operations, %.2f s%s\n", name, p->n, r.seconds,
                   r.outcome == SOAK_REFUSED ? ", refused" : "");
        fflush(stdout);
        if (r.outcome != SOAK_BAD) continue;
        show_failure(o, name, p, &r);
        return false;
    }
    return true;
}

static int run_file(const options *o)
{
    soak_program p;
    FILE *f = fopen(o->file, "r");

    if (!f) {
        perror(o->file);
        return 2;
    }
    bool read = soak_program_read(&p, f);
    fclose(f);
    if (!read) return 2;
    bool ok = run_one(o, "file", &p);
    printf("%s\n", ok ? "1 passed, 0 failed" : "0 passed, 1 failed");
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    static soak_program p;
    options o;
    int passed = 0, failed = 0;

    if (!parse(&o, argc, argv)) {
        fputs(usage, stderr);
        return 2;
    }
    soak_supervise_begin();
    if (o.file) return run_file(&o);
    double end = soak_now() + (o.seconds > 0 ? o.seconds : 1e9);
    for (int i = 0; i < o.programs && soak_now() < end; i++) {
        char name[32];
        snprintf(name, sizeof name, "%" PRIu64, o.seed + (uint64_t)i);
        soak_program_make(&p, o.seed + (uint64_t)i);
        if (o.print_only) {
            printf("# seed %s\n", name);
            soak_program_print(&p, stdout);
            continue;
        }
        bool ok = run_one(&o, name, &p);
        passed += ok;
        failed += !ok;
    }
    if (!o.print_only) printf("%d passed, %d failed\n", passed, failed);
    return failed > 0;
}
