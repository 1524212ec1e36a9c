/* rank_log_read.c - reads what a process of a run has said, while it says it.
 *
 * Parts are read by their numbers; the file without one is the part that comes
 * next. It may be given its number while we read it, and another may be in its
 * place: so we look for that number again afterwards, and when it is there what
 * we have read is thrown away and read from the part. */
#include <inttypes.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "train/log/rank_log.h"
#include "train/run/run_folder.h"
#include "train/storage/storage.h"

enum { PIECE = 65536 };

struct manta_run_log_reader {
    char *folder, *role;
    int n;
    int64_t number; /* of the part that is read */
    uint64_t at; /* bytes of it that have been */
    char piece[PIECE];
};

/* The parts that are there: the least number not below `from`, and the greatest;
 * 0: none. *current: the file without a number is there. */
static manta_status look_at_parts(const manta_run_log_reader *l, int64_t from, int64_t *least,
                                  int64_t *greatest, bool *current)
{
    char *path = rank_log_path(".", l->role, l->n);
    file_names names = {0};
    manta_status st = storage_list(l->folder, &names);

    *least = *greatest = 0;
    *current = false;
    for (size_t i = 0; i < names.n; i++) {
        int64_t number = rank_log_number(names.at[i], l->role, l->n);
        *current |= !strcmp(names.at[i], path + 2);
        if (number > *greatest) *greatest = number;
        if (number >= from && number && (!*least || number < *least)) *least = number;
    }
    file_names_release(&names);
    mem_free(path);
    return st;
}

manta_status manta_run_log_open(const char *folder, const char *role, int n, manta_run_log_reader **out)
{
    REFUSE_NULL(folder);
    REFUSE_NULL(role);
    REFUSE_NULL(out);

    manta_run_log_reader *l = mem_new(sizeof *l);
    int64_t least, greatest;
    bool current;
    manta_status st;

    l->folder = run_inner(folder, "log");
    l->role = mem_strdup(role);
    l->n = n;
    st = look_at_parts(l, 1, &least, &greatest, &current);
    if (!st && !current && !greatest)
        st = manta_fail(MANTA_ENOENT, "%s has no log of %s %d", folder, role, n);
    if (!st) {
        l->number = least ? least : 1;
        *out = l;
        l = NULL;
    }
    manta_run_log_close(l);
    return st;
}

void manta_run_log_close(manta_run_log_reader *l)
{
    if (!l) return;
    mem_free(l->folder);
    mem_free(l->role);
    mem_free(l);
}

/* Reads on in a part, or in the file without a number (0). */
static manta_status read_on(manta_run_log_reader *l, int64_t number, size_t *n)
{
    char *path =
        number ? rank_log_part(l->folder, l->role, l->n, number) : rank_log_path(l->folder, l->role, l->n);
    manta_status st;

    *n = 0;
    st = storage_read_at(path, l->at, l->piece, sizeof l->piece, n);
    mem_free(path);
    return st == MANTA_ENOENT ? MANTA_OK : st; /* it went meanwhile, or is to come */
}

manta_status manta_run_log_read(manta_run_log_reader *l, const char **text, size_t *n)
{
    REFUSE_NULL(l);
    REFUSE_NULL(text);
    REFUSE_NULL(n);

    int64_t least, greatest;
    bool current;

    *text = l->piece;
    for (;;) {
        TRY(look_at_parts(l, l->number, &least, &greatest, &current));
        if (least > l->number) { /* ours is gone: it was the oldest */
            l->number = least;
            l->at = 0;
        }
        TRY(read_on(l, least ? l->number : 0, n));
        if (least && *n) break;
        if (least) { /* the whole of a part */
            l->number++;
            l->at = 0;
            continue;
        }
        TRY(look_at_parts(l, l->number, &least, &greatest, &current));
        if (greatest < l->number) break; /* it had no number yet when it was read */
    }
    l->at += *n;
    return MANTA_OK;
}
