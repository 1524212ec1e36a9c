/* What Parquet files and tar archives hold, without columns being chosen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <manta/data_file.h>

#include "base/mem.h"
#include "ok.h"
#include "os/fault.h"
#include "os/file.h"
#include "recorded.h"
#include "scratch.h"

static void field_is(const manta_data_facts *f, int i, const char *name, const char *type, int64_t samples)
{
    assert_string_equal(f->fields[i].name, name);
    assert_string_equal(f->fields[i].type, type);
    assert_int_equal(f->fields[i].samples, samples);
    assert_true(f->fields[i].bytes > 0);
}

static void recorded_files_are_described(void **state)
{
    (void)state;
    manta_data_facts f = {0};

    assert_ok(manta_data_describe(GOLDEN "t.parquet", &f));
    assert_string_equal(f.format, "parquet");
    assert_int_equal(f.samples, 3);
    assert_int_equal(f.n, 4);
    field_is(&f, 0, "x", "FLOAT", 3);
    field_is(&f, 1, "label", "int64", 3);
    field_is(&f, 2, "s", "text (BYTE_ARRAY)", 3);
    field_is(&f, 3, "img", "list of uint8", 3);
    manta_data_facts_release(&f);
    assert_ok(manta_data_describe(GOLDEN "shard-000000.tar", &f));
    assert_string_equal(f.format, "tar");
    assert_int_equal(f.samples, 5);
    assert_int_equal(f.n, 3);
    field_is(&f, 0, "cls", "", 5);
    field_is(&f, 1, "json", "", 5);
    field_is(&f, 2, "x.bin", "", 5);
    manta_data_facts_release(&f);
    assert_int_equal(manta_data_describe(GOLDEN "sd.pt", &f), MANTA_EUNSUPPORTED);
    assert_int_equal(manta_data_describe("/nowhere/f.tar", &f), MANTA_ENOENT);
}

/* Cut anywhere, and with every call failing once: an answer or a sentence, and nothing stays behind. */
static void damaged_files_are_described_or_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"t.parquet", "shard-000000.tar"};

    for (int k = 0; k < 2; k++) {
        char path[512];
        void *data;
        size_t size;
        snprintf(path, sizeof path, "%s%s", GOLDEN, names[k]);
        assert_int_equal(file_read(path, 1 << 20, &data, &size), MANTA_OK);
        int64_t live = mem_live();
        for (size_t n = 0; n < size; n += n < 64 ? 1 : 97) {
            manta_data_facts f = {0};
            manta_status st = manta_data_describe(scratch_file(names[k], data, n), &f);
            if (k == 0) assert_int_equal(st, MANTA_ECORRUPT);
            assert_true(!st || st == MANTA_ECORRUPT);
            manta_data_facts_release(&f);
            assert_int_equal(mem_live(), live);
        }
        mem_try_free(data);
        live = mem_live();
        for (int64_t n = 1;; n++) {
            manta_data_facts f = {0};
            fault_begin((fault_plan){.at = n, .err = EIO});
            manta_status st = manta_data_describe(path, &f);
            bool hit = fault_end() > 0;
            manta_data_facts_release(&f);
            assert_int_equal(mem_live(), live);
            if (!hit) {
                assert_int_equal(st, MANTA_OK);
                break;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(recorded_files_are_described),
                                       cmocka_unit_test(damaged_files_are_described_or_refused)};

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
