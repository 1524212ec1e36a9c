/* pt_test.c - files that torch.save() wrote, files of ours, and archives made
 * to mislead. What the machine of the pickle refuses is in pickle_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <libdeflate.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "format/torch/pt.h"
#include "ok.h"
#include "recorded.h"
#include "replaced.h"

static int find(const pt_file *f, const char *name)
{
    for (size_t i = 0; i < f->tensors.n; i++) {
        if (strcmp(f->tensors.at[i].name, name) == 0) return (int)i;
    }
    fail_msg("no tensor %s", name);
    return -1;
}

static const char *note(const pt_file *f, const char *name)
{
    for (size_t i = 0; i < f->notes.n; i++) {
        if (strcmp(f->notes.at[i].name, name) == 0) return f->notes.at[i].text;
    }
    return NULL;
}

/* ---- torch's files ---- */

static void a_state_dict_is_read(void **state)
{
    (void)state;
    static const char *const names[] = {"0.weight",
                                        "0.bias",
                                        "1.weight",
                                        "1.bias",
                                        "1.running_mean",
                                        "1.running_var",
                                        "1.num_batches_tracked",
                                        "2.weight",
                                        "2.bias"};
    int64_t live = mem_live();
    pt_file f = {0};
    manta_array a;

    assert_ok(pt_read(golden("sd.pt"), &f));
    assert_int_equal(f.tensors.n, 9);
    for (int i = 0; i < 9; i++) assert_string_equal(f.tensors.at[i].name, names[i]);
    assert_int_equal(pt_array(&f, 0, &a), MANTA_OK);
    assert_int_equal(a.ndim, 4);
    assert_int_equal(a.shape[0] * 1000 + a.shape[1] * 100 + a.shape[2] * 10 + a.shape[3], 2133);
    assert_true(((float *)a.data)[0] > 0.1422f && ((float *)a.data)[0] < 0.1424f);
    assert_int_equal(pt_array(&f, 6, &a), MANTA_OK);
    assert_int_equal(a.dtype, MANTA_DTYPE_I64);
    assert_int_equal(a.ndim, 0);
    assert_int_equal(*(int64_t *)a.data, 0);
    assert_int_equal(f.notes.n, 0); /* _metadata is an attribute, and no part of the dictionary */
    pt_release(&f);
    assert_int_equal(mem_live(), live);
}

static void a_nested_checkpoint_is_read(void **state)
{
    (void)state;
    pt_file f = {0};
    manta_array a;

    assert_ok(pt_read(golden("full.pt"), &f));
    assert_int_equal(f.tensors.n, 8);
    assert_int_equal(pt_array(&f, find(&f, "model.weight"), &a), MANTA_OK);
    assert_int_equal(pt_array(&f, find(&f, "optim.state.1.exp_avg"), &a), MANTA_OK);
    assert_true(((float *)a.data)[1] > 0.0999f && ((float *)a.data)[1] < 0.1001f);
    assert_string_equal(note(&f, "epoch"), "3");
    assert_string_equal(note(&f, "optim.param_groups.0.lr"), "0.001");
    assert_string_equal(note(&f, "optim.param_groups.0.amsgrad"), "false");
    assert_string_equal(note(&f, "optim.param_groups.0.params.1"), "1");
    pt_release(&f);
}

static void other_kinds_of_files_are_refused(void **state)
{
    (void)state;
    pt_file f = {0};

    assert_int_equal(pt_read(golden("legacy.pt"), &f), MANTA_EUNSUPPORTED);
    assert_error_says("1.6");
    assert_int_equal(pt_read(golden("st.safetensors"), &f), MANTA_ECORRUPT);
    assert_int_equal(pt_read(scratch_path("none.pt"), &f), MANTA_ENOENT);
}

static manta_status parse(const uint8_t *data, size_t n, pt_file *f)
{
    input in = {.path = mem_strdup("file"), .data = mem_try_raw(n ? n : 1), .size = n};
    manta_status st;

    memcpy(in.data, data, n);
    st = pt_parse(&in, f);
    input_release(&in);
    return st;
}

static void a_cut_file_is_refused(void **state)
{
    (void)state;
    uint8_t whole[8192];
    size_t n = replaced_load(golden("sd.pt"), whole, sizeof whole);
    int64_t live = mem_live();

    assert_int_equal(n, 3710);
    for (size_t k = 0; k < n; k++) {
        pt_file f = {0};
        assert_true(parse(whole, k, &f) != MANTA_OK);
        assert_int_equal(mem_live(), live);
    }
}

/* A bit turned anywhere: refused, or read without harm; in the data of a member always refused. */
static void a_changed_bit_is_refused_or_harmless(void **state)
{
    (void)state;
    uint8_t whole[8192];
    size_t n = replaced_load(golden("sd.pt"), whole, sizeof whole);
    int64_t live = mem_live();
    int refused = 0;

    for (size_t k = 0; k < n; k++) {
        pt_file f = {0};
        whole[k] ^= (uint8_t)(1 << k % 8);
        if (parse(whole, n, &f)) refused++;
        pt_release(&f);
        whole[k] ^= (uint8_t)(1 << k % 8);
    }
    assert_true(refused > 1500);
    assert_int_equal(mem_live(), live);
}

/* ---- archives of our own making ---- */

typedef struct member {
    const char *name;
    const void *data;
    size_t n;
} member;

static void make_archive(const char *path, int n, const member *members)
{
    zip_writer z = {0};
    file_writer *w = NULL;

    assert_int_equal(file_writer_open(path, &w), MANTA_OK);
    z.w = w;
    for (int i = 0; i < n; i++) {
        assert_int_equal(
            zip_begin(&z, members[i].name, members[i].n, libdeflate_crc32(0, members[i].data, members[i].n)),
            MANTA_OK);
        assert_int_equal(zip_write(&z, members[i].data, members[i].n), MANTA_OK);
    }
    assert_int_equal(zip_end(&z), MANTA_OK);
    assert_int_equal(file_writer_commit(w), MANTA_OK);
    file_writer_free(w);
    zip_writer_release(&z);
}

#define STORAGE(type, key, n)                                                                                \
    "(X\x07\0\0\0storagectorch\n" type "Storage\nX\x01\0\0\0" key "X\x03\0\0\0cpu" n "tQ"
#define TENSOR(storage, offset, shape, strides)                                                              \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage offset shape strides "\x89"                               \
    "ccollections\nOrderedDict\n)RtR"
#define DICT(value) "\x80\x02}X\x01\0\0\0w" value "s."
#define F(value)    DICT(value), sizeof DICT(value) - 1

typedef struct pickled {
    const char *what;
    const char *program;
    size_t n;
    manta_status status;
} pickled;

/* data/0 has 24 bytes: six float32. */
static const pickled pickles[] = {
    {"plain", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "K\2K\3\x86", "K\3K\1\x86")), MANTA_OK},
    {"torch.Size",
     F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "ctorch\nSize\nK\2K\3\x86\x85R", "K\3K\1\x86")), MANTA_OK},
    {"turned", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "K\3K\2\x86", "K\1K\3\x86")), MANTA_OK},
    {"a part", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\1", "K\2\x85", "K\4\x85")), MANTA_OK},
    {"repeated", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\5", "K\x09\x85", "K\0\x85")), MANTA_OK},
    {"empty at the end", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\6", "K\0\x85", "K\1\x85")), MANTA_OK},
    {"one element", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\5", ")", ")")), MANTA_OK},
    {"a parameter",
     F("ctorch._utils\n_rebuild_parameter\n" TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "K\6\x85",
                                                    "K\1\x85") "\x88"
                                                               "ccollections\nOrderedDict\n)R\x87R"),
     MANTA_OK},
    {"one beyond", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\1", "K\6\x85", "K\1\x85")), MANTA_ECORRUPT},
    {"one element beyond", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\6", ")", ")")), MANTA_ECORRUPT},
    {"empty beyond the end", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\7", "K\0\x85", "K\1\x85")),
     MANTA_ECORRUPT},
    {"strides beyond", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "K\2\x85", "K\6\x85")), MANTA_ECORRUPT},
    {"strides that overflow",
     F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "K\3\x85",
              "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85")),
     MANTA_ECORRUPT},
    {"an offset that overflows",
     F(TENSOR(STORAGE("Float", "0", "K\6"), "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f", "K\3\x85",
              "K\1\x85")),
     MANTA_ECORRUPT},
    {"repeated beyond reason",
     F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "\x8a\x06\0\0\0\0\0\1\x85", "K\0\x85")), MANTA_ECORRUPT},
    {"sizes that overflow",
     F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "\x8a\x05\0\0\0\0\1\x8a\x05\0\0\0\0\1\x86", "K\0K\0\x86")),
     MANTA_ECORRUPT},
    {"a negative stride", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\5", "K\2\x85", "\x8a\1\xff\x85")),
     MANTA_ECORRUPT},
    {"a negative size", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "\x8a\1\xff\x85", "K\1\x85")),
     MANTA_ECORRUPT},
    {"a negative offset", F(TENSOR(STORAGE("Float", "0", "K\6"), "\x8a\1\xff", "K\1\x85", "K\1\x85")),
     MANTA_ECORRUPT},
    {"fewer strides than sizes", F(TENSOR(STORAGE("Float", "0", "K\6"), "K\0", "K\2K\3\x86", "K\1\x85")),
     MANTA_ECORRUPT},
    {"a storage of another size", F(TENSOR(STORAGE("Float", "0", "K\7"), "K\0", "K\6\x85", "K\1\x85")),
     MANTA_ECORRUPT},
    {"a storage of another type", F(TENSOR(STORAGE("Double", "0", "K\6"), "K\0", "K\1\x85", "K\1\x85")),
     MANTA_ECORRUPT},
    {"a storage of negative size",
     F(TENSOR(STORAGE("Float", "0", "\x8a\1\xff"), "K\0", "K\1\x85", "K\1\x85")), MANTA_ECORRUPT},
    {"a storage that is not there", F(TENSOR(STORAGE("Float", "7", "K\6"), "K\0", "K\6\x85", "K\1\x85")),
     MANTA_ECORRUPT},
    {"a storage elsewhere in the archive",
     F(TENSOR(STORAGE("Float", "/", "K\6"), "K\0", "K\6\x85", "K\1\x85")), MANTA_ECORRUPT},
    {"a number for a storage", F(TENSOR("K\1Q", "K\0", "K\6\x85", "K\1\x85")), MANTA_ECORRUPT},
    {"no storage", F(TENSOR("N", "K\0", "K\6\x85", "K\1\x85")), MANTA_ECORRUPT},
    {"a name for a storage", F(TENSOR("ctorch\nFloatStorage\n", "K\0", "K\6\x85", "K\1\x85")),
     MANTA_ECORRUPT},
    {"no arguments", F("ctorch._utils\n_rebuild_tensor_v2\n)R"), MANTA_ECORRUPT},
    {"a parameter of nothing", F("ctorch._utils\n_rebuild_parameter\n)R"), MANTA_ECORRUPT},
    {"a parameter of itself", F("ctorch._utils\n_rebuild_parameter\nN\x85R"), MANTA_ECORRUPT},
    {"os.system", F("cos\nsystem\nX\x02\0\0\0id\x85R"), MANTA_EPERM},
    {"a list in itself", F("]q\1h\1a"), MANTA_ECORRUPT},
    {"a key that is no name", "\x80\x02})Ns.", 7, MANTA_ECORRUPT},
    {"numbers only", F("K\1"), MANTA_OK},
};

static void hostile_pickles_are_refused(void **state)
{
    (void)state;
    static const float six[6] = {0, 1, 2, 3, 4, 5};
    int64_t live = mem_live();

    for (size_t i = 0; i < sizeof pickles / sizeof *pickles; i++) {
        const pickled *p = &pickles[i];
        const member members[] = {
            {"r/data.pkl", p->program, p->n}, {"r/version", "3\n", 2}, {"r/data/0", six, sizeof six}};
        const char *path = scratch_path("p.pt");
        pt_file f = {0};
        manta_status st;
        make_archive(path, 3, members);
        st = pt_read(path, &f);
        if (st != p->status) fail_msg("%s: status %d, %s", p->what, st, st ? manta_error_text() : "accepted");
        for (size_t k = 0; !st && k < f.tensors.n; k++) {
            manta_array a;
            const float *x;
            assert_int_equal(pt_array(&f, (int)k, &a), MANTA_OK);
            x = a.data;
            assert_int_equal((uintptr_t)x % 4, 0);
            if (manta_array_count(&a)) assert_true(x[0] >= 0 && x[0] <= 5);
        }
        pt_release(&f);
        assert_int_equal(mem_live(), live);
    }
}

/* Lists of lists that share their parts look like 10^16 values. */
static void shared_structures_do_not_explode(void **state)
{
    (void)state;
    char program[1024] = {0};
    size_t n = 14;
    pt_file f = {0};
    int64_t live = mem_live();

    memcpy(program, "\x80\x02}X\x01\0\0\0w(K\1q\0", 14);
    for (int level = 0; level < 12; level++) {
        program[n++] = ']';
        program[n++] = '(';
        for (int i = 0; i < 25; i++) {
            program[n++] = 'h';
            program[n++] = (char)level;
        }
        program[n++] = 'e';
        program[n++] = 'q';
        program[n++] = (char)(level + 1);
    }
    memcpy(program + n, "ts.", 3);
    n += 3;
    const member members[] = {{"r/data.pkl", program, n}, {"r/version", "3\n", 2}};
    make_archive(scratch_path("bomb.pt"), 2, members);
    assert_int_equal(pt_read(scratch_path("bomb.pt"), &f), MANTA_ECORRUPT);
    assert_error_says("too many values");
    assert_int_equal(mem_live(), live);
}

static void hostile_archives_are_refused(void **state)
{
    (void)state;
    static const char empty[] = "\x80\x02}.";
    static const struct {
        const char *what;
        int n;
        member members[3];
        manta_status status;
    } cases[] = {
        {"whole", 2, {{"r/data.pkl", empty, 4}, {"r/version", "3\n", 2}}, MANTA_OK},
        {"little",
         3,
         {{"r/data.pkl", empty, 4}, {"r/version", "10", 2}, {"r/byteorder", "little", 6}},
         MANTA_OK},
        {"no pickle", 1, {{"r/version", "3\n", 2}}, MANTA_ECORRUPT},
        {"no folder", 2, {{"data.pkl", empty, 4}, {"version", "3\n", 2}}, MANTA_ECORRUPT},
        {"deep folder", 2, {{"a/r/data.pkl", empty, 4}, {"a/r/version", "3\n", 2}}, MANTA_ECORRUPT},
        {"no version", 1, {{"r/data.pkl", empty, 4}}, MANTA_ECORRUPT},
        {"version 0", 2, {{"r/data.pkl", empty, 4}, {"r/version", "0", 1}}, MANTA_ECORRUPT},
        {"version 11", 2, {{"r/data.pkl", empty, 4}, {"r/version", "11", 2}}, MANTA_ECORRUPT},
        {"version x", 2, {{"r/data.pkl", empty, 4}, {"r/version", "x", 1}}, MANTA_ECORRUPT},
        {"big",
         3,
         {{"r/data.pkl", empty, 4}, {"r/version", "3", 1}, {"r/byteorder", "big", 3}},
         MANTA_EUNSUPPORTED},
        {"junk order",
         3,
         {{"r/data.pkl", empty, 4}, {"r/version", "3", 1}, {"r/byteorder", "?", 1}},
         MANTA_ECORRUPT},
        {"TorchScript",
         3,
         {{"r/data.pkl", empty, 4}, {"r/version", "3", 1}, {"r/constants.pkl", empty, 4}},
         MANTA_EUNSUPPORTED},
        {"a member twice",
         3,
         {{"r/data.pkl", empty, 4}, {"r/version", "3", 1}, {"r/version", "3", 1}},
         MANTA_ECORRUPT},
        {"an empty pickle", 2, {{"r/data.pkl", "", 0}, {"r/version", "3", 1}}, MANTA_ECORRUPT},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pt_file f = {0};
        manta_status st;
        make_archive(scratch_path("a.pt"), cases[i].n, cases[i].members);
        st = pt_read(scratch_path("a.pt"), &f);
        if (st != cases[i].status) fail_msg("%s: status %d, %s", cases[i].what, st, manta_error_text());
        pt_release(&f);
    }
}

static void types_we_have_not_are_refused_alone(void **state)
{
    (void)state;
    static const char program[] = DICT(TENSOR(STORAGE("Short", "0", "K\x0c"), "K\0", "K\2\x85", "K\1\x85"));
    static const float six[6];
    const member members[] = {
        {"r/data.pkl", program, sizeof program - 1}, {"r/version", "3\n", 2}, {"r/data/0", six, sizeof six}};
    pt_file f = {0};
    manta_array a;

    make_archive(scratch_path("s.pt"), 3, members);
    assert_int_equal(pt_read(scratch_path("s.pt"), &f), MANTA_OK);
    assert_int_equal(pt_array(&f, 0, &a), MANTA_EUNSUPPORTED);
    assert_error_says("torch.ShortStorage");
    pt_release(&f);
}

/* ---- writing ---- */

static float grid[6] = {0, 1, 2, 3, 4, 5};
static int64_t counter = 70000;

static int columns(manta_column *c)
{
    static const int64_t two_three[] = {2, 3}, many[] = {1, 2, 1, 3, 1}, none[] = {0, 4}, two[] = {2};
    int n = 0;

    c[n++] = (manta_column){"grid", manta_array_of(MANTA_DTYPE_F32, 2, two_three, grid)};
    c[n++] = (manta_column){"turned", manta_array_of(MANTA_DTYPE_F32, 2, two_three, grid)};
    c[n - 1].array.shape[0] = 3;
    c[n - 1].array.shape[1] = 2;
    c[n - 1].array.strides[0] = 1;
    c[n - 1].array.strides[1] = 3;
    c[n++] = (manta_column){"many", manta_array_of(MANTA_DTYPE_I32, 5, many, grid)};
    c[n++] = (manta_column){"counter", manta_array_of(MANTA_DTYPE_I64, 0, NULL, &counter)};
    c[n++] = (manta_column){"none", manta_array_of(MANTA_DTYPE_F64, 2, none, grid)};
    c[n++] = (manta_column){"h", manta_array_of(MANTA_DTYPE_F16, 1, two, grid)};
    c[n++] = (manta_column){"b", manta_array_of(MANTA_DTYPE_BF16, 1, two, grid)};
    c[n++] = (manta_column){"u.\xc3\xa9", manta_array_of(MANTA_DTYPE_U8, 1, two, grid)};
    c[n++] = (manta_column){"o", manta_array_of(MANTA_DTYPE_BOOL, 1, two, grid)};
    c[n++] = (manta_column){"d", manta_array_of(MANTA_DTYPE_F64, 1, two, grid)};
    return n;
}

static void what_is_written_is_read_back(void **state)
{
    (void)state;
    manta_column c[16];
    int n = columns(c);
    const char *path = scratch_path("w.pt");
    const float turned[] = {0, 3, 1, 4, 2, 5};
    uint8_t one[8192], two[8192];
    pt_file f = {0};
    size_t size;

    assert_ok(pt_write(path, n, c));
    assert_ok(pt_read(path, &f));
    assert_int_equal(f.tensors.n, n);
    for (int i = 0; i < n; i++) {
        manta_array a;
        assert_string_equal(f.tensors.at[i].name, c[i].name);
        assert_int_equal(pt_array(&f, i, &a), MANTA_OK);
        assert_int_equal(a.dtype, c[i].array.dtype);
        assert_int_equal(a.ndim, c[i].array.ndim);
        assert_memory_equal(a.shape, c[i].array.shape, (size_t)a.ndim * sizeof *a.shape);
        assert_true(manta_array_is_contiguous(&a));
        assert_null(f.storages.at[i].owned); /* aligned as it lies in the file */
        assert_int_equal((f.storages.at[i].bytes - f.in.data) % 64, 0);
        if (i == 1) {
            assert_memory_equal(a.data, turned, sizeof turned);
        } else {
            assert_memory_equal(a.data, c[i].array.data, manta_array_bytes(&a));
        }
    }
    for (int i = 0; i < f.z.n; i++)
        assert_int_equal(f.z.entries[i].method, 0); /* deflated ones cannot be mapped */
    pt_release(&f);
    size = replaced_load(path, one, sizeof one);
    assert_int_equal(pt_write(scratch_path("other name.pt"), n, c), MANTA_OK);
    assert_int_equal(replaced_load(scratch_path("other name.pt"), two, sizeof two), size);
    assert_memory_equal(one, two, size);
    assert_true(pt_is(one, size));
}

/* The program that torch is known to take for one tensor, byte for byte. */
static void the_pickle_has_torchs_bytes(void **state)
{
    (void)state;
    static const char known[] =
        "\x80\x02}(X\x01\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
        "X\x01\0\0\0"
        "0X\x03\0\0\0cpuK\x06tQK\0K\x02K\x03\x86K\x03K\x01\x86\x89"
        "ccollections\nOrderedDict\n)RtRu.";
    manta_column c[16];
    const uint8_t *bytes = NULL;
    void *owned = NULL;
    pt_file f = {0};

    columns(c);
    c[0].name = "w";
    assert_int_equal(pt_write(scratch_path("one.pt"), 1, c), MANTA_OK);
    assert_int_equal(pt_read(scratch_path("one.pt"), &f), MANTA_OK);
    assert_int_equal(zip_extract(&f.z, zip_find(&f.z, "archive/data.pkl"), &bytes, &owned), MANTA_OK);
    assert_int_equal(zip_find(&f.z, "archive/data.pkl")->size, 139);
    assert_int_equal(sizeof known - 1, 139);
    assert_memory_equal(bytes, known, 139);
    pt_release(&f);
}

static void bad_contents_are_not_written(void **state)
{
    (void)state;
    manta_column c[2] = {{"a", manta_array_of(MANTA_DTYPE_F32, 0, NULL, grid)},
                         {"a", manta_array_of(MANTA_DTYPE_F32, 0, NULL, grid)}};
    const char *path = scratch_path("no.pt");

    assert_int_equal(pt_write(path, 2, c), MANTA_EINVAL);
    c[0].name = "\xff";
    assert_int_equal(pt_write(path, 1, c), MANTA_EINVAL);
    c[0].name = NULL;
    assert_int_equal(pt_write(path, 1, c), MANTA_EINVAL);
    assert_int_equal(access(path, F_OK), -1);
}

static manta_status write_some(const char *path, int n)
{
    manta_column c[16];

    columns(c);
    return pt_write(path, n, c);
}

static void a_fault_while_writing_leaves_the_old_file_or_the_new(void **state)
{
    (void)state;
    manta_column c[16];

    replaced_whole_or_not(scratch_path("fault.pt"), write_some, columns(c));
}

static manta_status read_state_dict(void *ctx)
{
    pt_file f = {0};

    (void)ctx;
    manta_status st = pt_read(golden("sd.pt"), &f);
    pt_release(&f);
    return st;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    assert_true(alloc_fail_each(read_state_dict, NULL) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_dict_is_read),
        cmocka_unit_test(a_nested_checkpoint_is_read),
        cmocka_unit_test(other_kinds_of_files_are_refused),
        cmocka_unit_test(a_cut_file_is_refused),
        cmocka_unit_test(a_changed_bit_is_refused_or_harmless),
        cmocka_unit_test(hostile_pickles_are_refused),
        cmocka_unit_test(shared_structures_do_not_explode),
        cmocka_unit_test(hostile_archives_are_refused),
        cmocka_unit_test(types_we_have_not_are_refused_alone),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(the_pickle_has_torchs_bytes),
        cmocka_unit_test(bad_contents_are_not_written),
        cmocka_unit_test(a_fault_while_writing_leaves_the_old_file_or_the_new),
        cmocka_unit_test(failed_allocations_are_reported),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
