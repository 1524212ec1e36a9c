/* Storages: the path chooses one, and the operations suffice for checkpoints.
 * The second storage here keeps all in memory, can be full, and can stop at
 * any operation, as one does whose process is killed or whose network is cut. */
#include <unistd.h>

#include "base/buf.h"
#include "base/crc32c.h"
#include "base/mem.h"
#include "format/scratch.h"
#include "group_fixture.h"
#include "os/fault.h"
#include "os/file.h"
#include "train/checkpoint/checkpoints.h"
#include "train/run/run_folder.h"
#include "train/storage/storage.h"

#define FOLDER "memory://box/checkpoints"

/* ---- a storage in memory ---- */

typedef struct item {
    char *path;
    bool is_folder;
    buf data;
} item;

static struct {
    VEC(item) items;
    size_t capacity; /* bytes */
    size_t coming; /* bytes of files that are being written */
    bool locked;
    int64_t calls, stop_at; /* from this operation on all fail; 0: never */
} box;

static manta_status step(const char *doing, const char *path)
{
    box.calls++;
    if (!box.stop_at || box.calls < box.stop_at) return MANTA_OK;
    return manta_fail(MANTA_EIO, "%s %s: the connection is gone", doing, path);
}

static item *find(const char *path)
{
    for (size_t i = 0; i < box.items.n; i++) {
        if (!strcmp(box.items.at[i].path, path)) return &box.items.at[i];
    }
    return NULL;
}

static item *find_file(const char *path)
{
    item *it = find(path);

    return it && !it->is_folder ? it : NULL;
}

static manta_status missing(const char *path)
{
    return manta_fail(MANTA_ENOENT, "%s: nothing is there", path);
}

static size_t used(void)
{
    size_t n = box.coming;

    for (size_t i = 0; i < box.items.n; i++) n += box.items.at[i].data.n;
    return n;
}

static void drop_item(size_t i)
{
    mem_free(box.items.at[i].path);
    buf_release(&box.items.at[i].data);
    vec_remove(&box.items, i);
}

static void empty_box(void)
{
    while (box.items.n) drop_item(box.items.n - 1);
    vec_release(&box.items);
    memset(&box, 0, sizeof box);
    box.capacity = 1 << 20;
}

/* What of `path` lies below `folder`; NULL: it does not. "": it is the folder. */
static const char *below(const char *folder, const char *path)
{
    size_t n = strlen(folder);

    if (strncmp(path, folder, n) != 0) return NULL;
    return !path[n] ? "" : path[n] == '/' ? path + n + 1 : NULL;
}

static manta_status box_make(void *ctx, const char *path)
{
    (void)ctx;
    TRY(step("making", path));
    if (!find(path)) vec_push(&box.items, (item){.path = mem_strdup(path), .is_folder = true});
    return MANTA_OK;
}

static manta_status box_claim(void *ctx, const char *path)
{
    (void)ctx;
    TRY(step("claiming", path));
    if (find(path)) return manta_fail(MANTA_EEXIST, "%s is taken", path);
    vec_push(&box.items, (item){.path = mem_strdup(path), .is_folder = true});
    return MANTA_OK;
}

typedef struct coming {
    char *path;
    buf data;
} coming;

static manta_status full(const char *path)
{
    return manta_fail(MANTA_ENOSPC, "writing %s: no space is left", path);
}

static manta_status coming_reserve(void *self, uint64_t size)
{
    coming *c = self;

    return size > box.capacity - used() ? full(c->path) : MANTA_OK;
}

static manta_status coming_write(void *self, const void *data, size_t n)
{
    coming *c = self;

    TRY(step("writing", c->path));
    if (n > box.capacity - used()) return full(c->path);
    buf_add(&c->data, data, n);
    box.coming += n;
    return MANTA_OK;
}

static manta_status coming_commit(void *self)
{
    coming *c = self;
    item *it = find(c->path);

    TRY(step("committing", c->path));
    if (!it) {
        vec_push(&box.items, (item){.path = mem_strdup(c->path)});
        it = &vec_last(&box.items);
    }
    buf_release(&it->data);
    it->data = c->data;
    box.coming -= c->data.n;
    c->data = (buf){0};
    return MANTA_OK;
}

static void coming_free(void *self)
{
    coming *c = self;

    box.coming -= c->data.n;
    buf_release(&c->data);
    mem_free(c->path);
    mem_free(c);
}

static const file_sink coming_sink = {coming_reserve, coming_write, coming_commit, coming_free};

static manta_status box_create(void *ctx, const char *path, file_writer **out)
{
    coming *c;

    (void)ctx;
    TRY(step("creating", path));
    c = mem_new(sizeof *c);
    c->path = mem_strdup(path);
    return file_writer_to(path, &coming_sink, c, out);
}

static manta_status box_sum(void *ctx, const char *path, file_sum *out)
{
    const item *it = find_file(path);

    (void)ctx;
    TRY(step("summing", path));
    if (!it) return missing(path);
    *out = (file_sum){.size = it->data.n, .crc = crc32c(0, it->data.at, it->data.n)};
    return MANTA_OK;
}

static manta_status box_take(void *ctx, const char *from, const char *path, file_sum *sum)
{
    void *data = NULL;
    size_t n;
    manta_status st;

    TRY(file_read(from, 1 << 20, &data, &n));
    st = storage_put(path, data, n);
    mem_try_free(data);
    if (!st) st = file_remove(from);
    return st || !sum ? st : box_sum(ctx, path, sum);
}

static manta_status box_open_log(void *ctx, const char *path, void **log)
{
    (void)ctx;
    TRY(step("opening", path));
    if (!find(path)) vec_push(&box.items, (item){.path = mem_strdup(path)});
    *log = mem_strdup(path);
    return MANTA_OK;
}

static manta_status box_add(void *log, const void *data, size_t n)
{
    item *it = find_file(log);

    TRY(step("adding to", log));
    if (!it) return missing(log);
    if (n > box.capacity - used()) return full(log);
    buf_add(&it->data, data, n);
    return MANTA_OK;
}

static manta_status box_read(void *ctx, const char *path, size_t max_size, void **out, size_t *size)
{
    const item *it = find_file(path);
    char *copy;

    (void)ctx;
    TRY(step("reading", path));
    if (!it) return missing(path);
    if (it->data.n > max_size) return manta_fail(MANTA_EINVAL, "reading %s: it is too large", path);
    if (!(copy = mem_try_raw(it->data.n + 1))) return manta_fail(MANTA_ENOMEM, "reading %s", path);
    memcpy(copy, buf_text(&it->data), it->data.n + 1);
    *out = copy;
    *size = it->data.n;
    return MANTA_OK;
}

static manta_status box_read_at(void *ctx, const char *path, uint64_t at, void *to, size_t most, size_t *n)
{
    const item *it = find_file(path);

    (void)ctx;
    TRY(step("reading", path));
    if (!it) return missing(path);
    *n = at >= it->data.n ? 0 : it->data.n - at;
    if (*n > most) *n = most;
    memcpy(to, buf_text(&it->data) + (*n ? at : 0), *n);
    return MANTA_OK;
}

static manta_status box_look(void *ctx, const char *path, file_info *out)
{
    const item *it = find(path);

    (void)ctx;
    TRY(step("looking at", path));
    if (!it) return missing(path);
    *out = (file_info){.size = it->data.n, .is_folder = it->is_folder, .is_file = !it->is_folder};
    return MANTA_OK;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static manta_status box_list(void *ctx, const char *path, file_names *out)
{
    (void)ctx;
    TRY(step("listing", path));
    if (!find(path)) return missing(path);
    for (size_t i = 0; i < box.items.n; i++) {
        const char *name = below(path, box.items.at[i].path);
        if (name && *name && !strchr(name, '/')) vec_push(out, mem_strdup(name));
    }
    if (out->n) qsort(out->at, out->n, sizeof *out->at, by_bytes);
    return MANTA_OK;
}

static manta_status box_remove(void *ctx, const char *path)
{
    item *it = find_file(path);

    (void)ctx;
    TRY(step("removing", path));
    if (!it) return missing(path);
    drop_item((size_t)(it - box.items.at));
    return MANTA_OK;
}

/* One by one, and the folder last: it may stop between two. */
static manta_status box_remove_tree(void *ctx, const char *path)
{
    (void)ctx;
    if (!find(path)) return missing(path);
    for (size_t i = box.items.n; i-- > 0;) {
        const char *name = below(path, box.items.at[i].path);
        if (!name || !*name) continue;
        TRY(step("removing", path));
        drop_item(i);
    }
    TRY(step("removing", path));
    drop_item((size_t)(find(path) - box.items.at));
    return MANTA_OK;
}

static void move_all(const char *from, const char *to)
{
    for (size_t i = 0; i < box.items.n; i++) {
        item *it = &box.items.at[i];
        const char *name = below(from, it->path);
        char *path;
        if (!name) continue;
        path = mem_printf("%s%s%s", to, *name ? "/" : "", name);
        mem_free(it->path);
        it->path = path;
    }
}

static manta_status box_publish(void *ctx, const char *temp, const char *path)
{
    (void)ctx;
    TRY(step("publishing", path));
    if (!find(temp)) return missing(temp);
    if (find(path)) return manta_fail(MANTA_EEXIST, "%s is taken", path);
    move_all(temp, path);
    return MANTA_OK;
}

static manta_status box_withdraw(void *ctx, const char *path)
{
    char *away =
        mem_printf("%.*s/.%s.gone.manta-tmp", (int)(strrchr(path, '/') - path), path, strrchr(path, '/') + 1);
    manta_status st = step("withdrawing", path);

    if (!st && find(path)) {
        move_all(path, away);
        st = box_remove_tree(ctx, away);
    }
    mem_free(away);
    return st;
}

static manta_status box_lock(void *ctx, const char *path, void **held)
{
    (void)ctx;
    TRY(step("locking", path));
    if (box.locked) return manta_fail(MANTA_EBUSY, "%s: somebody is at work there", path);
    box.locked = true;
    if (!find(path)) vec_push(&box.items, (item){.path = mem_strdup(path)});
    *held = &box;
    return MANTA_OK;
}

static void box_unlock(void *held)
{
    assert_ptr_equal(held, &box);
    box.locked = false;
}

static int box_holder(void *ctx, const char *path)
{
    (void)ctx;
    (void)path;
    return box.locked ? -1 : 0;
}

static const storage_ops memory = {.scheme = "memory",
                                   .about = "memory://... of this test",
                                   .make = box_make,
                                   .claim = box_claim,
                                   .create = box_create,
                                   .take = box_take,
                                   .open_log = box_open_log,
                                   .add = box_add,
                                   .close_log = mem_free,
                                   .read = box_read,
                                   .read_at = box_read_at,
                                   .sum = box_sum,
                                   .look = box_look,
                                   .list = box_list,
                                   .remove = box_remove,
                                   .remove_tree = box_remove_tree,
                                   .publish = box_publish,
                                   .withdraw = box_withdraw,
                                   .lock = box_lock,
                                   .unlock = box_unlock,
                                   .holder = box_holder};

static int count_litter(void)
{
    int n = 0;

    for (size_t i = 0; i < box.items.n; i++) {
        const char *name = below(FOLDER, box.items.at[i].path);
        n += name && *name == '.' && strstr(name, ".manta-tmp");
    }
    return n;
}

/* ---- what is saved ---- */

typedef struct subject {
    manta_model *model;
    manta_session *s;
} subject;

static subject small_session(void)
{
    manta_optimizer adam;
    manta_loss loss = {.name = "mean_squared_error"};
    manta_compile c = {.optimizer = &adam, .n_losses = 1, .losses = &loss};
    subject u = {.model = manta_model_new("small")};

    assert_ok(manta_optimizer_named("adam", &adam));
    manta_input(u.model, "x", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    manta_model_add(u.model, manta_dense(u.model, (manta_dense_options){.units = 3}));
    assert_ok(manta_model_build(u.model));
    assert_ok(manta_session_open(u.model, &c, &(manta_session_options){.threads = 1, .seed = 5}, &u.s));
    return u;
}

static void close_subject(subject *u)
{
    manta_session_close(u->s);
    manta_model_free(u->model);
}

static void set_all(manta_session *s, float value)
{
    float flat[64];

    for (int i = 0; i < 64; i++) flat[i] = value;
    manta_session_set_flat(s, flat);
}

static manta_status save(manta_checkpoints *m, const subject *u, float value)
{
    manta_checkpoint_info info = {.epoch = (int64_t)value};

    set_all(u->s, value);
    TRY(manta_checkpoints_save(m, u->s, &info, true));
    return manta_checkpoints_wait(m);
}

static float value_of(const manta_checkpoint *c)
{
    manta_saved *saved;
    float value;

    assert_ok(manta_checkpoint_arrays(c, &saved));
    assert_string_equal(manta_saved_format(saved), "safetensors");
    value = *(const float *)manta_saved_find(saved, "dense/kernel")->data;
    manta_saved_free(saved);
    return value;
}

/* The weights in the latest that is whole; -1: none. Damage gets its sentence, or NULL. */
static float latest(manta_checkpoints *m, char **damage)
{
    manta_checkpoint *c;
    float value = -1;

    *damage = NULL;
    if (manta_checkpoints_latest(m, &c, damage)) return value;
    value = value_of(c);
    manta_checkpoint_close(c);
    return value;
}

static manta_checkpoints *open_box(int keep)
{
    manta_checkpoints *m;

    assert_ok(manta_checkpoints_open(FOLDER, &(manta_checkpoints_options){.keep = keep}, &m));
    return m;
}

/* ---- the tests ---- */

static void the_path_chooses(void **state)
{
    static const char *const local[] = {"/a/b", "a", "", "./s3://a", "s3:/a", "://a", "1s://a", "a b://c"};
    const storage_ops *s;

    (void)state;
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        assert_true(storage_is_local(local[i]));
        assert_ok(storage_find(local[i], &s));
        assert_null(s->scheme);
    }
    assert_ok(storage_find(FOLDER, &s));
    assert_ptr_equal(s, &memory);
    assert_int_equal(storage_find("memor://a", &s), MANTA_EUNSUPPORTED);
    assert_int_equal(storage_find("memory2://a", &s), MANTA_EUNSUPPORTED);
}

static void assert_refused(manta_status st)
{
    assert_int_equal(st, MANTA_EUNSUPPORTED);
    assert_error_says("there is no storage 'gs' yet");
    assert_error_says("expected the path of a folder, s3://BUCKET/PREFIX, memory://");
    assert_int_not_equal(access("gs:", F_OK), 0); /* and nothing was made of it */
}

static void unknown_schemes_are_refused(void **state)
{
    manta_checkpoints *m;
    manta_checkpoint *c;
    manta_run *r;
    manta_run_info *runs, info;
    int n;

    (void)state;
    assert_refused(manta_checkpoints_open("gs://bucket/c", NULL, &m));
    assert_refused(
        manta_checkpoints_open("gs://bucket/c", &(manta_checkpoints_options){.read_only = true}, &m));
    assert_refused(manta_checkpoint_open("gs://bucket/c/checkpoint-000001", &c));
    assert_refused(manta_run_open(&(manta_run_options){.storage = "gs://bucket"}, &r));
    assert_refused(manta_run_open(&(manta_run_options){.storage = "gs://bucket", .name = "a"}, &r));
    assert_refused(manta_run_open(&(manta_run_options){.folder = "gs://bucket/a"}, &r));
    assert_refused(manta_runs_list("gs://bucket", &runs, &n));
    assert_refused(manta_run_read("gs://bucket/a", &info));
    assert_int_not_equal(access("memory:", F_OK), 0);
}

static void written_and_read_back(void **state)
{
    subject u = small_session();
    manta_checkpoints *m, *second;
    manta_checkpoint *c;
    const char *path;
    char *damage;
    float flat[64];
    file_info copied;

    (void)state;
    empty_box();
    m = open_box(2);
    assert_int_equal(manta_checkpoints_open(FOLDER, NULL, &second), MANTA_EBUSY);
    for (int i = 1; i <= 4; i++) assert_ok(save(m, &u, (float)i));
    assert_int_equal(manta_checkpoints_count(m), 2);
    manta_checkpoints_close(m);
    assert_int_equal(count_litter(), 0);
    assert_null(find(FOLDER "/checkpoint-000002"));
    assert_int_not_equal(access("memory:", F_OK), 0);

    m = open_box(2);
    assert_true(manta_checkpoints_at(m, 0, &path, NULL));
    assert_string_equal(path, FOLDER "/checkpoint-000003");
    assert_ok(manta_checkpoints_latest(m, &c, &damage));
    assert_null(damage);
    assert_int_equal(manta_checkpoint_get(c)->epoch, 4);
    set_all(u.s, 0);
    assert_ok(manta_session_from_checkpoint(u.s, c, false));
    manta_session_get_flat(u.s, flat);
    assert_true(flat[0] == 4);
    assert_ok(manta_checkpoint_copy(c, scratch_path("copy")));
    assert_ok(file_stat(scratch_path("copy/" CHECKPOINT_STATE), &copied));
    assert_int_equal(copied.size, find(FOLDER "/checkpoint-000004/" CHECKPOINT_STATE)->data.n);
    manta_checkpoint_close(c);
    assert_ok(manta_checkpoints_clear(m));
    manta_checkpoints_close(m);
    assert_int_equal(used(), 0);
    close_subject(&u);
}

static void files_of_the_user(void **state)
{
    manta_checkpoint_info info = {.epoch = 3};
    manta_checkpoints *m;
    manta_checkpoint *c;
    void *text;
    size_t n;

    (void)state;
    empty_box();
    assert_ok(file_mkdirs(scratch_path("mine/deep")));
    assert_ok(file_replace(scratch_path("mine/one.txt"), "1", 1));
    assert_ok(file_replace(scratch_path("mine/deep/two.txt"), "22", 2));
    m = open_box(0);
    assert_ok(manta_checkpoints_add(m, scratch_path("mine"), &info));
    assert_int_not_equal(access(scratch_path("mine"), F_OK), 0);
    assert_ok(manta_checkpoints_latest(m, &c, NULL));
    assert_ok(manta_checkpoint_copy(c, scratch_path("again")));
    assert_ok(file_read(scratch_path("again/deep/two.txt"), 10, &text, &n));
    assert_string_equal(text, "22");
    mem_try_free(text);
    manta_checkpoint_close(c);
    manta_checkpoints_close(m);
}

static void damage_is_named_and_passed_over(void **state)
{
    static const char *const files[] = {CHECKPOINT_STATE, "manifest.json"};
    subject u = small_session();
    manta_checkpoints *m;
    char *damage;

    (void)state;
    empty_box();
    m = open_box(0);
    assert_ok(save(m, &u, 1));
    assert_ok(save(m, &u, 2));
    manta_checkpoints_close(m);
    for (int f = 0; f < 2; f++) {
        char *path = mem_printf(FOLDER "/checkpoint-000002/%s", files[f]);
        buf *data = &find(path)->data;
        assert_true(data->n > 100);
        for (size_t at = 0; at < data->n; at += 13) {
            data->at[at] = (char)(data->at[at] ^ 1 << at % 8);
            m = open_box(0);
            assert_true(latest(m, &damage) == 1);
            assert_non_null(strstr(damage, FOLDER "/checkpoint-000002"));
            manta_checkpoints_close(m);
            free(damage);
            data->at[at] = (char)(data->at[at] ^ 1 << at % 8);
        }
        m = open_box(0);
        assert_true(latest(m, &damage) == 2 && !damage);
        manta_checkpoints_close(m);
        mem_free(path);
    }
    assert_ok(storage_remove(FOLDER "/checkpoint-000002/" CHECKPOINT_STATE));
    m = open_box(0);
    assert_true(latest(m, &damage) == 1);
    assert_non_null(strstr(damage, CHECKPOINT_STATE " is missing"));
    manta_checkpoints_close(m);
    free(damage);
    close_subject(&u);
}

static void a_full_storage(void **state)
{
    subject u = small_session();
    size_t one;
    int lost = 0, fitted = 0;

    (void)state;
    empty_box();
    manta_checkpoints *m = open_box(1);
    assert_ok(save(m, &u, 1));
    manta_checkpoints_close(m);
    one = used();
    for (size_t more = 0; !fitted; more += 97) {
        char *damage;
        manta_status st;
        empty_box();
        m = open_box(1);
        assert_ok(save(m, &u, 1));
        box.capacity = one + more;
        st = save(m, &u, 2);
        assert_true(st == MANTA_OK || st == MANTA_ENOSPC);
        if (st) {
            assert_error_says("no space is left");
            lost++;
        } else {
            fitted++;
        }
        assert_int_equal(count_litter(), 0);
        assert_true(latest(m, &damage) == (st ? 1 : 2) && !damage);
        box.capacity = 1 << 20; /* somebody made room */
        assert_ok(save(m, &u, 3));
        assert_true(latest(m, &damage) == 3 && !damage);
        manta_checkpoints_close(m);
    }
    assert_true(lost > 5);
    close_subject(&u);
}

static void stopped_at_every_operation(void **state)
{
    subject u = small_session();
    int n = 1, old = 0;

    (void)state;
    for (bool stopped = true; stopped; n++) {
        manta_checkpoints *m;
        manta_status st;
        char *damage;
        empty_box();
        m = open_box(1);
        assert_ok(save(m, &u, 1));
        box.stop_at = box.calls + n;
        st = save(m, &u, 2);
        stopped = box.calls >= box.stop_at;
        manta_checkpoints_close(m);
        box.stop_at = 0;
        m = open_box(1); /* sweeps */
        assert_int_equal(count_litter(), 0);
        assert_true(latest(m, &damage) == (st ? 1 : 2) && !damage);
        assert_ok(save(m, &u, 3));
        assert_true(latest(m, &damage) == 3 && !damage);
        assert_int_equal(manta_checkpoints_count(m), 1);
        manta_checkpoints_close(m);
        old += st != MANTA_OK;
    }
    assert_true(old >= 6 && n > old + 2); /* before it stood, and while the one before was let go */
    close_subject(&u);
}

static void lines_grow(void **state)
{
    const char *const paths[] = {"memory://box/log", scratch_path("log")};
    storage_log *l;
    void *text;
    size_t n;

    (void)state;
    empty_box();
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) { /* opened again, it goes on */
            assert_ok(storage_log_open(paths[i], &l));
            assert_ok(storage_log_add(l, "a\n", 2));
            storage_log_close(l);
        }
        assert_ok(storage_read(paths[i], 100, &text, &n));
        assert_string_equal(text, "a\na\n");
        mem_try_free(text);
        for (uint64_t at = 0; at < 6; at++) {
            char some[3];
            assert_ok(storage_read_at(paths[i], at, some, 3, &n));
            assert_int_equal(n, at < 1 ? 3 : at < 4 ? 4 - at : 0);
            assert_memory_equal(some, &"a\na\n"[at < 4 ? at : 4], n);
        }
        assert_int_equal(storage_read_at(i ? scratch_path("none") : "memory://box/none", 0, &n, 1, &n),
                         MANTA_ENOENT);
    }
    assert_int_equal(storage_log_open(scratch_path("none/log"), &l), MANTA_ENOENT);
}

/* A disk that was full for a while: of the line that did not fit nothing stands. */
static void no_line_in_the_middle_of_another(void **state)
{
    const char *path = scratch_path("short");
    storage_log *l;
    void *text;
    size_t n;

    (void)state;
    assert_ok(storage_log_open(path, &l));
    assert_ok(storage_log_add(l, "the first\n", 10));
    fault_begin((fault_plan){.short_io = true});
    assert_int_equal(storage_log_add(l, "the second\n", 11), MANTA_ENOSPC);
    fault_end();
    assert_ok(storage_log_add(l, "the third\n", 10));
    assert_ok(storage_log_sync(l));
    storage_log_close(l);
    assert_ok(storage_read(path, 100, &text, &n));
    assert_string_equal(text, "the first\nthe third\n");
    mem_try_free(text);
}

static int setup(void **state)
{
    make_data();
    storage_add(&memory);
    return scratch_setup_quick(state);
}

static int teardown(void **state)
{
    empty_box();
    return scratch_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_path_chooses),
        cmocka_unit_test(unknown_schemes_are_refused),
        cmocka_unit_test(written_and_read_back),
        cmocka_unit_test(files_of_the_user),
        cmocka_unit_test(damage_is_named_and_passed_over),
        cmocka_unit_test(a_full_storage),
        cmocka_unit_test(stopped_at_every_operation),
        cmocka_unit_test(lines_grow),
        cmocka_unit_test(no_line_in_the_middle_of_another),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
