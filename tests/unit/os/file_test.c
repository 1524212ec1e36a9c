/* file_test.c - files, on good days and on every bad one: each operation is run
 * with its 1st, 2nd, 3rd ... system call or allocation failing until it passes,
 * and after each try nothing may be left of it and the old contents be whole. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/mem.h"
#include "ok.h"
#include "os/fault.h"
#include "os/file.h"
#include "temp.h"

static char folder[64]; /* of the test that runs */

static char *in_folder(const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];

    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static int folder_make(void **state)
{
    (void)state;
    return temp_folder(folder, sizeof folder, "/tmp", "file") ? 0 : -1;
}

/* Removes what is in `path`, and what is below. */
static void empty(const char *path)
{
    DIR *d = opendir(path);

    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char child[1024];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(child, sizeof child, "%s/%s", path, e->d_name);
        if (unlink(child) == 0) continue;
        empty(child);
        rmdir(child);
    }
    closedir(d);
}

static int folder_remove(void **state)
{
    (void)state;
    mem_fail_at(0, 0);
    os_use(NULL);
    empty(folder);
    return rmdir(folder);
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(in_folder(name), "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

/* The text of a file, "<none>" when there is none. By plain means, not ours. */
static const char *get(const char *name)
{
    static char text[256 * 1024];
    FILE *f = fopen(in_folder(name), "r");

    if (!f) return "<none>";
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    return text;
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);

    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n - 2; /* without . and .. */
}

typedef struct census {
    int64_t blocks;
    int descriptors, files;
} census;

static census census_take(void)
{
    return (census){mem_live(), count_entries("/proc/self/fd"), count_entries(folder)};
}

static void census_equal(census a, census b)
{
    assert_int_equal(a.blocks, b.blocks);
    assert_int_equal(a.descriptors, b.descriptors);
    assert_int_equal(a.files, b.files);
}

static void reads_whole_files(void **state)
{
    (void)state;
    void *data = NULL;
    size_t size = 99;
    put("f", "hello");
    assert_int_equal(file_read(in_folder("f"), 5, &data, &size), MANTA_OK);
    assert_int_equal(size, 5);
    assert_memory_equal(data, "hello", 6); /* with its terminator */
    mem_try_free(data);
    put("empty", "");
    assert_int_equal(file_read(in_folder("empty"), 0, &data, &size), MANTA_OK);
    assert_int_equal(size, 0);
    assert_string_equal(data, "");
    mem_try_free(data);
    /* A file that says 0 bytes and has some. */
    assert_int_equal(file_read("/proc/self/status", 1 << 20, &data, &size), MANTA_OK);
    assert_non_null(strstr(data, "VmRSS"));
    assert_int_equal(strlen(data), size);
    mem_try_free(data);

    data = &size, size = 99;
    assert_int_equal(file_read(in_folder("f"), 4, &data, &size), MANTA_EINVAL);
    assert_error_says("/f:");
    assert_int_equal(file_read("/proc/self/status", 10, &data, &size), MANTA_EINVAL);
    /* Without an end, and without a bound: it is not begun. */
    assert_int_equal(file_read("/dev/zero", SIZE_MAX, &data, &size), MANTA_EINVAL);
    assert_error_says("/dev/zero: it is a device");
    assert_int_equal(file_read(in_folder("no"), 4, &data, &size), MANTA_ENOENT);
    assert_error_says("/no: No such file or directory");
    assert_int_equal(file_read(folder, 4, &data, &size), MANTA_EIO);
    assert_ptr_equal(data, &size);
    assert_int_equal(size, 99);

    char text[6];
    assert_int_equal(file_read_text(in_folder("f"), text, 6), MANTA_OK);
    assert_string_equal(text, "hello");
    assert_int_equal(file_read_text(in_folder("f"), text, 5), MANTA_EINVAL);
    assert_int_equal(file_read_text(in_folder("no"), text, 6), MANTA_ENOENT);
    assert_int_equal(file_read_text(folder, text, 6), MANTA_EIO);
}

static void replaces_and_creates(void **state)
{
    (void)state;
    struct stat info;
    mode_t mask = umask(027);
    assert_int_equal(file_replace(in_folder("f"), "one", 3), MANTA_OK);
    umask(mask);
    assert_string_equal(get("f"), "one");
    assert_int_equal(stat(in_folder("f"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640); /* as the user's mask wants it */
    assert_int_equal(chmod(in_folder("f"), 0604), 0);
    assert_int_equal(file_replace(in_folder("f"), "two", 3), MANTA_OK);
    assert_int_equal(stat(in_folder("f"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0604); /* as the old file had it */
    assert_string_equal(get("f"), "two");
    assert_int_equal(file_replace(in_folder("f"), NULL, 0), MANTA_OK);
    assert_string_equal(get("f"), "");
    assert_int_equal(count_entries(folder), 1);

    /* Without a slash the folder is the current one. */
    char *here = getcwd(NULL, 0);
    assert_non_null(here);
    assert_int_equal(chdir(folder), 0);
    manta_status st = file_replace("g", "x", 1);
    assert_int_equal(chdir(here), 0);
    free(here);
    assert_int_equal(st, MANTA_OK);
    assert_string_equal(get("g"), "x");

    char longest[256];
    memset(longest, 'n', 255);
    longest[255] = 0;
    assert_int_equal(file_replace(in_folder(longest), "x", 1),
                     MANTA_OK); /* the temporary name is cut to fit */
    assert_string_equal(get(longest), "x");
}

static void refuses_names_that_cannot_be(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_folder("d"), 0777), 0);
    census before = census_take();
    assert_int_equal(file_replace(in_folder("no/f"), "x", 1), MANTA_ENOENT);
    assert_int_equal(file_replace(in_folder("d"), "x", 1), MANTA_EEXIST);
    assert_int_equal(file_replace(in_folder("d/"), "x", 1), MANTA_EINVAL);
    assert_int_equal(file_replace("", "x", 1), MANTA_EINVAL);
    census_equal(census_take(), before);
}

/* What a killed writer of the same name left goes with the next one; what belongs to
 * a process that lives, to a writer elsewhere, or to another name stays. */
static void what_a_killed_writer_left(void **state)
{
    static const char *const gone[] = {".f.2147483647-0.manta-tmp", ".f.2147483646-17.manta-tmp"};
    static const char *const stay[] = {".g.2147483647-0.manta-tmp", ".f.2147483647-x.manta-tmp",
                                       ".f.x.2147483647-0.manta-tmp", ".f.0-0.manta-tmp",
                                       ".f.2147483647-1.manta-tmp"};
    char mine[64];
    int held;

    (void)state;
    snprintf(mine, sizeof mine, ".f.%ld-77.manta-tmp", (long)getpid());
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        close(open(in_folder(gone[i]), O_CREAT | O_WRONLY, 0600));
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++)
        close(open(in_folder(stay[i]), O_CREAT | O_WRONLY, 0600));
    close(open(in_folder(mine), O_CREAT | O_WRONLY, 0600));
    held = open(in_folder(stay[4]), O_RDONLY); /* as if a writer of another host had it */
    assert_int_equal(flock(held, LOCK_EX), 0);
    assert_int_equal(file_replace(in_folder("f"), "new", 3), MANTA_OK);
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
        assert_int_not_equal(access(in_folder(gone[i]), F_OK), 0);
    for (size_t i = 0; i < sizeof stay / sizeof *stay; i++) {
        assert_int_equal(access(in_folder(stay[i]), F_OK), 0);
        assert_int_equal(remove(in_folder(stay[i])), 0);
    }
    assert_int_equal(remove(in_folder(mine)), 0);
    close(held);
}

/* So does that of a writer whose parent has not yet heard of its end. */
static void what_an_unburied_writer_left(void **state)
{
    char name[64];
    siginfo_t info;
    pid_t pid = fork();

    (void)state;
    if (pid == 0) _exit(0);
    assert_true(pid > 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0); /* dead, and still there */
    snprintf(name, sizeof name, ".f.%ld-3.manta-tmp", (long)pid);
    close(open(in_folder(name), O_CREAT | O_WRONLY, 0600));
    assert_int_equal(kill(pid, 0), 0);
    assert_int_equal(file_replace(in_folder("f"), "new", 3), MANTA_OK);
    assert_int_not_equal(access(in_folder(name), F_OK), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void an_abandoned_writer_leaves_nothing(void **state)
{
    (void)state;
    put("f", "old");
    census before = census_take();
    file_writer *w = NULL;
    assert_int_equal(file_writer_open(in_folder("f"), &w), MANTA_OK);
    assert_int_equal(file_writer_write(w, "new", 3), MANTA_OK);
    assert_int_equal(count_entries(folder), 2);
    assert_string_equal(get("f"), "old"); /* readers see the old one all the while */
    file_writer_free(w);
    file_writer_free(NULL);
    assert_string_equal(get("f"), "old");
    census_equal(census_take(), before);
}

/* Small, large and empty writes, in an order that crosses the buffer's edge. */
static char *pieces(size_t *total)
{
    static char all[200000];

    *total = sizeof all - 1;
    for (size_t i = 0; i < *total; i++) all[i] = (char)('a' + i % 23);
    return all;
}

static manta_status write_pieces(const char *path)
{
    manta_status st;
    file_writer *w = NULL;
    size_t total, at = 0;
    const char *all = pieces(&total);
    static const size_t steps[] = {1, 0, 60000, 5535, 1, 70000, 3, 64000};

    if ((st = file_writer_open(path, &w))) goto out;
    if ((st = file_writer_reserve(w, total))) goto out;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if ((st = file_writer_write(w, all + at, steps[i]))) goto out;
        at += steps[i];
    }
    if ((st = file_writer_write(w, all + at, total - at))) goto out;
    st = file_writer_commit(w);
out:
    file_writer_free(w);
    return st;
}

static void writes_pieces_in_order(void **state)
{
    (void)state;
    size_t total;
    const char *all = pieces(&total);
    assert_int_equal(write_pieces(in_folder("f")), MANTA_OK);
    assert_int_equal(strlen(get("f")), total);
    assert_string_equal(get("f"), all);
}

static void makes_folders(void **state)
{
    (void)state;
    file_info info;
    struct stat made;
    assert_int_equal(file_mkdirs(in_folder("a//b/c/")), MANTA_OK);
    assert_int_equal(file_mkdirs(in_folder("a/b/c")), MANTA_OK); /* again is fine */
    assert_int_equal(file_mkdirs("/"), MANTA_OK);
    assert_int_equal(file_mkdirs_own(in_folder("a/own/inner")), MANTA_OK);
    assert_int_equal(stat(in_folder("a/own/inner"), &made), 0);
    assert_int_equal(made.st_mode & 0777, 0700);
    assert_int_equal(chmod(in_folder("a/own/inner"), 0711), 0);
    assert_int_equal(file_mkdirs_own(in_folder("a/own/inner")), MANTA_OK); /* stays as it is */
    assert_int_equal(stat(in_folder("a/own/inner"), &made), 0);
    assert_int_equal(made.st_mode & 0777, 0711);
    assert_int_equal(file_stat(in_folder("a/b/c"), &info), MANTA_OK);
    assert_true(info.is_folder && !info.is_file);
    put("f", "12345");
    assert_int_equal(file_mkdirs(in_folder("f")), MANTA_EEXIST);
    assert_int_equal(file_mkdirs(in_folder("f/g")), MANTA_EEXIST);
    assert_int_equal(file_mkdirs(""), MANTA_ENOENT);
    assert_int_equal(file_stat(in_folder("f"), &info), MANTA_OK);
    assert_true(info.is_file && !info.is_folder && info.size == 5);
    assert_true(info.changed_ns > (int64_t)1700000000 * 1000000000);
    assert_int_equal(file_stat(in_folder("no"), &info), MANTA_ENOENT);
    assert_int_equal(file_remove(in_folder("f")), MANTA_OK);
    assert_int_equal(file_remove(in_folder("f")), MANTA_ENOENT);
}

static void lists_in_order(void **state)
{
    (void)state;
    file_names names = {0};
    int64_t before = mem_live();
    assert_int_equal(file_list(folder, &names), MANTA_OK);
    assert_int_equal(names.n, 0);
    put("b", ""), put("a", ""), put("C", ""), put(".hidden", "");
    vec_push(&names, mem_strdup("first"));
    assert_int_equal(file_list(folder, &names), MANTA_OK);
    static const char *const expected[] = {"first", ".hidden", "C", "a", "b"};
    assert_int_equal(names.n, 5);
    for (int i = 0; i < 5; i++) assert_string_equal(names.at[i], expected[i]);
    assert_int_equal(file_list(in_folder("no"), &names), MANTA_ENOENT);
    assert_int_equal(file_list(in_folder("a"), &names), MANTA_ENOENT);
    assert_int_equal(names.n, 5);
    file_names_release(&names);
    assert_int_equal(mem_live(), before);
}

/* The operations of the fault loops. Each leaves `result` of the file "f" when
 * it succeeds, and `old` when it fails. */
static manta_status op_replace(void)
{
    return file_replace(in_folder("f"), "new", 3);
}

static manta_status op_pieces(void)
{
    return write_pieces(in_folder("f"));
}

static manta_status op_read(void)
{
    void *data = NULL;
    size_t size;

    TRY(file_read(in_folder("f"), 100, &data, &size));
    assert_string_equal(data, "old");
    mem_try_free(data);
    return MANTA_OK;
}

/* Its size is not known before, so the block grows several times. */
static manta_status op_read_growing(void)
{
    void *data = NULL;
    size_t size;

    TRY(file_read("/proc/self/smaps", 1 << 24, &data, &size));
    assert_true(size > 4096);
    mem_try_free(data);
    return MANTA_OK;
}

static manta_status op_read_text(void)
{
    char text[16];

    TRY(file_read_text(in_folder("f"), text, sizeof text));
    assert_string_equal(text, "old");
    return MANTA_OK;
}

static manta_status op_list(void)
{
    file_names names = {0};
    manta_status st = file_list(folder, &names);

    if (st)
        assert_int_equal(names.n, 0);
    else
        assert_int_equal(names.n, 1);
    file_names_release(&names);
    return st;
}

static manta_status op_mkdirs(void)
{
    return file_mkdirs(in_folder("")); /* all there: each step must be found so */
}

static manta_status op_stat(void)
{
    file_info info;

    TRY(file_stat(in_folder("f"), &info));
    assert_int_equal(info.size, 3);
    return MANTA_OK;
}

static manta_status op_remove(void)
{
    return file_remove(in_folder("f"));
}

static const struct operation {
    const char *name;
    manta_status (*run)(void);
    const char *old, *result; /* NULL result: the pieces */
    int min_calls; /* fewer would mean that the loop tests nothing */
} operations[] = {
    {"replace", op_replace, "old", "new", 9},
    {"create", op_replace, "<none>", "new", 8},
    {"pieces", op_pieces, "old", NULL, 12},
    {"read", op_read, "old", "old", 4},
    {"read growing", op_read_growing, "old", "old", 5},
    {"read text", op_read_text, "old", "old", 3},
    {"list", op_list, "old", "old", 6},
    {"mkdirs", op_mkdirs, "old", "old", 2},
    {"stat", op_stat, "old", "old", 1},
    {"remove", op_remove, "old", "<none>", 1},
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

static const char *result_of(const struct operation *op)
{
    size_t total;

    return op->result ? op->result : pieces(&total);
}

static void prepare(const struct operation *op)
{
    empty(folder);
    if (strcmp(op->old, "<none>") != 0) put("f", op->old);
}

/* After a try: whole contents that fit the answer, and nothing left over. */
static void check_after(const struct operation *op, manta_status st, census before, bool unlink_works)
{
    bool done = st == MANTA_OK || st == MANTA_EUNKNOWN;
    const char *expected = done ? result_of(op) : op->old;

    assert_string_equal(get("f"), expected);
    census after = census_take();
    int files = strcmp(expected, "<none>") != 0;
    if (!unlink_works && after.files == files + 1) after.files--; /* the temporary file nobody could remove */
    before.files = files;
    census_equal(after, before);
    if (st) assert_true(strlen(manta_error_text()) > 0);
}

static void every_system_call_may_fail(void **state)
{
    (void)state;
    static const int errors[] = {EIO, ENOSPC, EACCES, EMFILE, ENOMEM};
    for (int o = 0; o < N_OPERATIONS; o++) {
        const struct operation *op = &operations[o];
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            for (int mode = 0; mode < 3; mode++) { /* once; from then on; from then on, unlink too */
                fault_plan plan = {
                    .err = errors[e], .sticky = mode > 0, .spare_unlink = mode < 2 && op->run != op_remove};
                for (plan.at = 1;; plan.at++) {
                    prepare(op);
                    census before = census_take();
                    fault_begin(plan);
                    manta_status st = op->run();
                    int64_t hits = fault_end();
                    check_after(op, st, before, mode < 2);
                    if (hits > 0) continue;
                    assert_int_equal(st, MANTA_OK);
                    break;
                }
                assert_true(plan.at > op->min_calls);
            }
        }
    }
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    int failed = 0;
    for (int o = 0; o < N_OPERATIONS; o++) {
        for (int sticky = 0; sticky <= 1; sticky++) {
            for (int n = 1;; n++) {
                prepare(&operations[o]);
                census before = census_take();
                mem_fail_at(n, sticky);
                manta_status st = operations[o].run();
                int64_t hits = mem_failures();
                mem_fail_at(0, 0);
                check_after(&operations[o], st, before, true);
                assert_int_equal(st, hits ? MANTA_ENOMEM : MANTA_OK);
                if (!hits) break;
                failed++;
            }
        }
    }
    assert_true(failed >= 8);
}

static void interruptions_and_short_transfers_go_unnoticed(void **state)
{
    (void)state;
    for (int o = 0; o < N_OPERATIONS; o++) {
        for (int mode = 1; mode < 4; mode++) {
            prepare(&operations[o]);
            census before = census_take();
            fault_begin((fault_plan){.interrupt = mode & 1, .short_io = mode & 2});
            manta_status st = operations[o].run();
            fault_end();
            assert_int_equal(st, MANTA_OK);
            check_after(&operations[o], st, before, true);
        }
    }
}

/* The bytes must reach the disk before the name does, and the name after. */
static char trace[64];

static int trace_fsync(int fd)
{
    struct stat info;

    strcat(trace, fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) ? "D" : "F");
    return os_real.fsync(fd);
}

static int trace_rename(const char *from, const char *to)
{
    strcat(trace, "R");
    return os_real.rename(from, to);
}

static ssize_t trace_write(int fd, const void *b, size_t n)
{
    strcat(trace, "w");
    return os_real.write(fd, b, n);
}

static void the_order_of_a_commit_is_durable(void **state)
{
    (void)state;
    os_sys table = os_real;
    table.fsync = trace_fsync;
    table.rename = trace_rename;
    table.write = trace_write;
    trace[0] = 0;
    os_use(&table);
    manta_status st = file_replace(in_folder("f"), "x", 1);
    os_use(NULL);
    assert_int_equal(st, MANTA_OK);
    assert_string_equal(trace, "wFRD");
}

static int fsync_folder_fails(int fd)
{
    struct stat info;

    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        errno = EIO;
        return -1;
    }
    return os_real.fsync(fd);
}

static int fallocate_unsupported(int fd, int mode, off_t at, off_t n)
{
    (void)fd, (void)mode, (void)at, (void)n;
    errno = EOPNOTSUPP;
    return -1;
}

static void an_unsynced_folder_is_an_unknown_outcome(void **state)
{
    (void)state;
    os_sys table = os_real;
    table.fsync = fsync_folder_fails;
    table.fallocate = fallocate_unsupported; /* and this one is no failure at all */
    put("f", "old");
    os_use(&table);
    manta_status st = write_pieces(in_folder("f"));
    os_use(NULL);
    assert_int_equal(st, MANTA_EUNKNOWN);
    assert_error_says(folder);
    size_t total;
    assert_string_equal(get("f"), pieces(&total));
}

static off_t begun; /* up to where the disk was told to begin */

static int begin_and_fail(int fd, off_t at, off_t n, unsigned flags)
{
    struct stat info;

    assert_int_equal(flags, SYNC_FILE_RANGE_WRITE); /* it waits for nothing */
    assert_int_equal(at, begun);
    assert_int_equal(fstat(fd, &info), 0);
    assert_true(n > 0 && at + n <= info.st_size);
    begun = at + n;
    errno = EIO;
    return -1;
}

/* Pieces larger and smaller than what is gathered, summed on the way; the disk hears of them early. */
static void the_disk_begins_before_the_commit(void **state)
{
    (void)state;
    const size_t size = 10 << 20, sizes[] = {1, 70001, 3 << 20, 65536, 12345};
    unsigned char *data = mem_try_raw(size);
    os_sys table = os_real;
    file_writer *w = NULL;
    void *found = NULL;
    size_t n_found = 0;

    assert_non_null(data);
    for (size_t i = 0; i < size; i++) data[i] = (unsigned char)(i * 2654435761u >> 13);
    table.sync_file_range = begin_and_fail;
    begun = 0;
    os_use(&table);
    assert_int_equal(file_writer_open(in_folder("f"), &w), MANTA_OK);
    for (size_t at = 0, k, i = 0; at < size; at += k, i++) {
        k = sizes[i % 5] < size - at ? sizes[i % 5] : size - at;
        assert_int_equal(file_writer_write(w, data + at, k), MANTA_OK);
    }
    file_sum sum = file_writer_sum(w);
    assert_true(begun >= 8 << 20); /* a failure of it is none of ours */
    assert_int_equal(file_writer_commit(w), MANTA_OK);
    file_writer_free(w);
    os_use(NULL);
    assert_true(sum.size == size && sum.crc == crc32c(0, data, size));
    assert_int_equal(file_read(in_folder("f"), size, &found, &n_found), MANTA_OK);
    assert_true(n_found == size && !memcmp(found, data, size));
    mem_try_free(found);
    mem_try_free(data);
}

static char synced_names[200]; /* the last parts of the paths, in order */

static int note_fsync(int fd)
{
    char link[64], path[512];
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = '\0';
    strcat(synced_names, strrchr(path, '/') + 1);
    strcat(synced_names, " ");
    return os_real.fsync(fd);
}

/* Files before the folders they lie in; nothing that is no file passes for one. */
static void a_tree_comes_to_disk(void **state)
{
    (void)state;
    os_sys table = os_real;
    assert_int_equal(file_mkdirs(in_folder("t/inner")), MANTA_OK);
    put("t/a", "1");
    put("t/inner/b", "2");
    table.fsync = note_fsync;
    synced_names[0] = '\0';
    os_use(&table);
    manta_status st = file_sync_tree(in_folder("t"));
    os_use(NULL);
    assert_int_equal(st, MANTA_OK);
    assert_string_equal(synced_names, "a b inner t ");
    for (int n = 1;; n++) {
        fault_begin((fault_plan){.at = n, .err = EIO});
        st = file_sync_tree(in_folder("t"));
        if (!fault_end()) break;
        if (st) assert_error_says(folder); /* closing a folder may fail unheard */
    }
    assert_int_equal(st, MANTA_OK);
    assert_int_equal(symlink("a", in_folder("t/link")), 0);
    assert_int_equal(file_sync_tree(in_folder("t")), MANTA_EINVAL); /* a link is no file */
    assert_int_equal(unlink(in_folder("t/link")), 0);
    assert_int_equal(symlink(".", in_folder("t/link")), 0);
    assert_int_equal(file_sync_tree(in_folder("t")), MANTA_EINVAL); /* nor a folder */
    assert_error_says("link");
    assert_int_equal(unlink(in_folder("t/link")), 0);
    assert_int_equal(mkfifo(in_folder("t/pipe"), 0600), 0);
    assert_int_equal(file_sync_tree(in_folder("t")), MANTA_EINVAL);
    assert_error_says("pipe");
    assert_int_equal(file_sync_tree(in_folder("none")), MANTA_ENOENT);
}

/* Piece by piece, whatever the system gives at a time. */
static void a_file_is_copied(void **state)
{
    enum { SIZE = (2 << 20) + 7 };
    char *text = malloc(SIZE);
    void *copy = NULL;
    size_t n;

    (void)state;
    for (int i = 0; i < SIZE; i++) text[i] = (char)(i * 7 + i / 251);
    assert_int_equal(file_replace(in_folder("from"), text, SIZE), MANTA_OK);
    assert_int_equal(file_copy(in_folder("from"), in_folder("to")), MANTA_OK);
    assert_int_equal(file_read(in_folder("to"), SIZE, &copy, &n), MANTA_OK);
    assert_true(n == SIZE && !memcmp(copy, text, SIZE));
    mem_try_free(copy);
    put("from", "short");
    for (int at = 1;; at++) {
        put("to", "before");
        fault_begin((fault_plan){.at = at, .err = EIO, .short_io = at % 2 == 0, .interrupt = true});
        manta_status st = file_copy(in_folder("from"), in_folder("to"));
        bool failed = fault_end();
        assert_int_equal(file_read(in_folder("to"), SIZE, &copy, &n), MANTA_OK);
        if (st != MANTA_EUNKNOWN) assert_string_equal(copy, st ? "before" : "short");
        mem_try_free(copy);
        if (!failed) break;
    }
    assert_int_equal(file_copy(in_folder("none"), in_folder("to")), MANTA_ENOENT);
    assert_int_equal(file_copy(in_folder("."), in_folder("to")), MANTA_EIO);
    free(text);
}

static void errnos_become_statuses(void **state)
{
    (void)state;
    static const struct {
        int err;
        manta_status st;
    } cases[] = {{ENOENT, MANTA_ENOENT}, {EEXIST, MANTA_EEXIST}, {EACCES, MANTA_EPERM},  {EPERM, MANTA_EPERM},
                 {ENOSPC, MANTA_ENOSPC}, {EDQUOT, MANTA_ENOSPC}, {ENOMEM, MANTA_ENOMEM}, {EBUSY, MANTA_EBUSY},
                 {EIO, MANTA_EIO},       {EMFILE, MANTA_EIO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(file_fail(cases[i].err, "writing", "/x"), cases[i].st);
    assert_string_equal(manta_error_text(), "writing /x: Too many open files");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, folder_make, folder_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_whole_files),
        TEST(replaces_and_creates),
        TEST(refuses_names_that_cannot_be),
        TEST(what_a_killed_writer_left),
        TEST(what_an_unburied_writer_left),
        TEST(an_abandoned_writer_leaves_nothing),
        TEST(writes_pieces_in_order),
        TEST(the_disk_begins_before_the_commit),
        TEST(makes_folders),
        TEST(lists_in_order),
        TEST(every_system_call_may_fail),
        TEST(every_allocation_may_fail),
        TEST(interruptions_and_short_transfers_go_unnoticed),
        TEST(the_order_of_a_commit_is_durable),
        TEST(an_unsynced_folder_is_an_unknown_outcome),
        TEST(a_tree_comes_to_disk),
        TEST(a_file_is_copied),
        TEST(errnos_become_statuses),
    };

    return cmocka_run_group_tests_name("os/file", tests, NULL, NULL);
}
