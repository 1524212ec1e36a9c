/* pickle_test.c - programs that describe data, and programs that want more. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "format/torch/pickle.h"
#include "ok.h"

static const pickle_global globals[] = {
    {"collections", "OrderedDict", PICKLE_MAKES_DICT},
    {"torch", "Size", PICKLE_CALLED},
    {"torch", "FloatStorage", PICKLE_NAMED},
};

/* Runs a program from memory of its own, so that a sanitizer sees what reads beyond. */
static manta_status run(const char *program, size_t n, pickle *p, uint8_t **memory)
{
    *memory = malloc(n ? n : 1);
    memcpy(*memory, program, n);
    return pickle_parse("file", *memory, n, globals, 3, p);
}

typedef struct bad_program {
    const char *what;
    const char *program;
    size_t n;
    manta_status status;
    const char *says; /* a part of the sentence */
} bad_program;

#define P(text) text, sizeof text - 1

static const bad_program programs[] = {
    /* code */
    {"os.system",
     P("\x80\x02"
       "cos\nsystem\nX\x02\0\0\0id\x85R."),
     MANTA_EPERM, "os.system"},
    {"posix.system", P("cposix\nsystem\nX\x02\0\0\0id\x85R."), MANTA_EPERM, "posix.system"},
    {"eval",
     P("cbuiltins\neval\nX\x01\0\0\0"
       "1\x85R."),
     MANTA_EPERM, "builtins.eval"},
    {"__builtin__.eval", P("c__builtin__\neval\n."), MANTA_EPERM, "__builtin__.eval"},
    {"getattr", P("cbuiltins\ngetattr\n."), MANTA_EPERM, "builtins.getattr"},
    {"subprocess", P("csubprocess\nPopen\n]\x85R."), MANTA_EPERM, "subprocess.Popen"},
    {"torch.load itself", P("ctorch\nload\n."), MANTA_EPERM, "torch.load"},
    {"torch.hub", P("ctorch.hub\nload\n."), MANTA_EPERM, "torch.hub.load"},
    {"a name that begins like one", P("ctorch\nSizeX\n."), MANTA_EPERM, "torch.SizeX"},
    {"a dotted way around", P("ctorch\nSize.__class__\n."), MANTA_EPERM, "torch.Size.__class__"},
    {"an empty name", P("c\n\n."), MANTA_EPERM, "names ."},
    {"control characters in a name", P("c\x1b[2J\nx\n."), MANTA_EPERM, "?[2J.x"},
    {"REDUCE of what may only be named", P("ctorch\nFloatStorage\n)R."), MANTA_EPERM, "torch.FloatStorage"},
    {"NEWOBJ of what may only be named", P("ctorch\nFloatStorage\n)\x81."), MANTA_EPERM,
     "torch.FloatStorage"},
    {"REDUCE of a text", P("X\x02\0\0\0os)R."), MANTA_EPERM, "calls what is no function"},
    {"REDUCE of a call's result", P("ctorch\nSize\n)R)R."), MANTA_EPERM, "calls what is no function"},
    {"REDUCE with a list", P("ctorch\nSize\n]R."), MANTA_ECORRUPT, "no tuple"},
    {"a dictionary from arguments", P("ccollections\nOrderedDict\n]\x85R."), MANTA_ECORRUPT, "arguments"},
    {"BUILD of a list", P("]}b."), MANTA_ECORRUPT, "attributes"},
    {"BUILD of a name", P("ctorch\nSize\n}b."), MANTA_ECORRUPT, "attributes"},
    /* operations that are not allowed */
    {"INST", P("(ios\nsystem\n."), MANTA_EPERM, "69"},
    {"OBJ", P("(o."), MANTA_EPERM, "6f"},
    {"STACK_GLOBAL", P("X\x02\0\0\0osX\x06\0\0\0system\x93."), MANTA_EPERM, "93"},
    {"SHORT_BINUNICODE",
     P("\x8c\x01"
       "a."),
     MANTA_EPERM, "8c"},
    {"MEMOIZE", P("N\x94."), MANTA_EPERM, "94"},
    {"FRAME", P("\x95\0\0\0\0\0\0\0\0N."), MANTA_EPERM, "95"},
    {"BINBYTES", P("B\0\0\0\0."), MANTA_EPERM, "42"},
    {"BINUNICODE8", P("\x8d\0\0\0\0\0\0\0\0."), MANTA_EPERM, "8d"},
    {"POP", P("NN0."), MANTA_EPERM, "30"},
    {"LONG4", P("\x8b\0\0\0\0."), MANTA_EPERM, "8b"},
    {"INT", P("I1\n."), MANTA_EPERM, "49"},
    {"FLOAT", P("F1\n."), MANTA_EPERM, "46"},
    {"PERSID", P("Px\n."), MANTA_EPERM, "50"},
    {"EXT1", P("\x82\x01."), MANTA_EPERM, "82"},
    {"NEWOBJ_EX", P("ctorch\nSize\n)}\x92."), MANTA_EPERM, "92"},
    /* protocol 6 */
    {"a protocol there is not", P("\x80\x06N."), MANTA_ECORRUPT, "protocol"},
    /* a stack that is not there */
    {"nothing", P(""), MANTA_ECORRUPT, "ends"},
    {"STOP with nothing", P("."), MANTA_ECORRUPT, "stack"},
    {"STOP above a mark", P("N(."), MANTA_ECORRUPT, "stack"},
    {"no STOP", P("N"), MANTA_ECORRUPT, "ends"},
    {"TUPLE without mark", P("NNt."), MANTA_ECORRUPT, "mark"},
    {"TUPLE3 of two", P("NN\x87."), MANTA_ECORRUPT, "stack"},
    {"TUPLE1 across a mark", P("N(\x85."), MANTA_ECORRUPT, "stack"},
    {"APPEND to nothing", P("Na."), MANTA_ECORRUPT, "stack"},
    {"APPEND to a tuple", P(")Na."), MANTA_ECORRUPT, "no list"},
    {"APPENDS across a mark", P("]((e."), MANTA_ECORRUPT, "stack"},
    {"SETITEM of a list", P("]NNs."), MANTA_ECORRUPT, "no dictionary"},
    {"SETITEMS of three", P("}(NNNu."), MANTA_ECORRUPT, "without a value"},
    {"REDUCE with one", P("ctorch\nSize\nR."), MANTA_ECORRUPT, "stack"},
    {"BINPERSID of nothing", P("Q."), MANTA_ECORRUPT, "stack"},
    {"BINPUT of nothing", P("q\0."), MANTA_ECORRUPT, "stack"},
    {"BINPUT above a mark", P("N(q\0."), MANTA_ECORRUPT, "stack"},
    {"BINGET of nothing", P("h\0."), MANTA_ECORRUPT, "remembered"},
    {"LONG_BINGET of a huge place", P("j\xff\xff\xff\xff."), MANTA_ECORRUPT, "remembered"},
    /* bytes that are not there */
    {"GLOBAL without end", P("ctorch\nSize"), MANTA_ECORRUPT, "name"},
    {"BINUNICODE beyond the end",
     P("X\xff\xff\xff\x7f"
       "abc."),
     MANTA_ECORRUPT, "ends"},
    {"BINUNICODE of 4 GiB",
     P("X\xff\xff\xff\xff"
       "abc."),
     MANTA_ECORRUPT, "ends"},
    {"SHORT_BINSTRING beyond the end",
     P("U\x09"
       "abc."),
     MANTA_ECORRUPT, "ends"},
    {"not UTF-8", P("X\x01\0\0\0\xff."), MANTA_ECORRUPT, "UTF-8"},
    {"a surrogate", P("X\x03\0\0\0\xed\xa0\x80."), MANTA_ECORRUPT, "UTF-8"},
    {"an overlong form", P("X\x02\0\0\0\xc0\x80."), MANTA_ECORRUPT, "UTF-8"},
    {"a cut form", P("X\x01\0\0\0\xc3."), MANTA_ECORRUPT, "UTF-8"},
    {"a number of 9 bytes", P("\x8a\x09\1\1\1\1\1\1\1\1\1."), MANTA_ECORRUPT, "64 bits"},
    {"a number of 255 bytes", P("\x8a\xff\1."), MANTA_ECORRUPT, "64 bits"},
    {"a cut float", P("G\0\0\0."), MANTA_ECORRUPT, "ends"},
};

static void bad_programs_are_refused(void **state)
{
    (void)state;
    int64_t live = mem_live();

    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const bad_program *b = &programs[i];
        pickle p = {0};
        uint8_t *memory;
        manta_status st = run(b->program, b->n, &p, &memory);
        if (st != b->status)
            fail_msg("%s: status %d (%s)", b->what, st, st ? manta_error_text() : "accepted");
        if (!strstr(manta_error_text(), b->says)) fail_msg("%s: says \"%s\"", b->what, manta_error_text());
        assert_error_says("file");
        free(memory);
        assert_int_equal(mem_live(), live);
    }
}

static const pickle_value *item(const pickle *p, const pickle_value *v, uint32_t i)
{
    assert_true(i < v->n);
    return &p->values[v->u.items[i]];
}

static void values_are_read(void **state)
{
    (void)state;
    static const char program[] =
        "\x80\x02(NK\xffM\xff\xffJ\xff\xff\xff\xff\x8a\x00\x8a\x01\x80\x8a\x08\0\0\0\0\0\0\0\x80"
        "G\xbf\xf8\0\0\0\0\0\0\x88\x89X\x02\0\0\0\xc3\xa9U\x01z]\x8f}t.";
    static const int64_t ints[] = {255, 65535, -1, 0, -128, INT64_MIN};
    pickle p = {0};
    uint8_t *memory;
    const pickle_value *root;

    assert_ok(run(program, sizeof program - 1, &p, &memory));
    root = &p.values[p.root];
    assert_int_equal(root->kind, PICKLE_TUPLE);
    assert_int_equal(root->n, 15);
    assert_int_equal(item(&p, root, 0)->kind, PICKLE_NONE);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(item(&p, root, 1 + i)->kind, PICKLE_INT);
        assert_true(item(&p, root, 1 + i)->u.i == ints[i]);
    }
    assert_true(item(&p, root, 7)->u.f == -1.5);
    assert_int_equal(item(&p, root, 8)->u.i, 1);
    assert_int_equal(item(&p, root, 9)->u.i, 0);
    assert_true(pickle_is_text(item(&p, root, 10), "\xc3\xa9"));
    assert_false(pickle_is_text(item(&p, root, 10), "\xc3"));
    assert_true(pickle_is_text(item(&p, root, 11), "z"));
    assert_int_equal(item(&p, root, 12)->kind, PICKLE_LIST);
    assert_int_equal(item(&p, root, 13)->kind, PICKLE_SET);
    assert_int_equal(item(&p, root, 14)->kind, PICKLE_DICT);
    pickle_release(&p);
    free(memory);
}

/* Dictionaries, the memo, calls, persistent ids and attributes, as torch.save() uses them. */
static void structures_of_torch_are_read(void **state)
{
    (void)state;
    static const char program[] =
        "ccollections\nOrderedDict\n)Rr\xff\xff\xff\xff(X\x01\0\0\0aK\x01K\x02\x86q\x01"
        "X\x01\0\0\0bctorch\nSize\nh\x01\x85Ru"
        "X\x01\0\0\0cctorch\nFloatStorage\n\x85Qs}X\x01\0\0\0mNsb.";
    pickle p = {0};
    uint8_t *memory;
    const pickle_value *d, *call;

    assert_ok(run(program, sizeof program - 1, &p, &memory));
    d = &p.values[p.root];
    assert_int_equal(d->kind, PICKLE_DICT);
    assert_int_equal(d->n, 6);
    assert_true(pickle_is_text(item(&p, d, 0), "a"));
    assert_int_equal(item(&p, d, 1)->kind, PICKLE_TUPLE);
    call = item(&p, d, 3);
    assert_int_equal(call->kind, PICKLE_CALL);
    assert_int_equal(call->callee, 1);
    assert_ptr_equal(item(&p, item(&p, call, 0), 0), item(&p, d, 1)); /* shared through the memo */
    assert_int_equal(item(&p, d, 5)->kind, PICKLE_PERSISTENT);
    pickle_release(&p);
    free(memory);
}

static void a_list_may_hold_itself(void **state)
{
    (void)state;
    pickle p = {0};
    uint8_t *memory;

    assert_int_equal(run("]q\0h\0a.", 7, &p, &memory), MANTA_OK);
    assert_int_equal(p.values[p.root].n, 1);
    assert_int_equal(p.values[p.root].u.items[0], p.root);
    pickle_release(&p);
    free(memory);
}

/* A program of one operation over and over ends at a limit, not at the end of memory. */
static void endless_programs_end_at_a_limit(void **state)
{
    (void)state;
    static const struct {
        const char *unit;
        size_t n;
        const char *says;
    } cases[] = {
        {"(", 1, "stack"}, {"N", 1, "stack"}, {"]", 1, "stack"}, {"N)", 2, "stack"}, {"N\x85", 2, "stack"}};
    const size_t size = 6 << 20;
    char *program = malloc(size);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pickle p = {0};
        int64_t live = mem_live();
        for (size_t k = 0; k < size; k++) program[k] = cases[i].unit[k % cases[i].n];
        assert_int_equal(pickle_parse("file", (uint8_t *)program, size, globals, 3, &p), MANTA_ECORRUPT);
        assert_error_says(cases[i].says);
        assert_int_equal(mem_live(), live);
    }
    /* values without end on a stack that stays low: a list is appended to */
    {
        pickle p = {0};
        program[0] = ']';
        for (size_t k = 1; k < size; k++) program[k] = k % 2 ? 'N' : 'a';
        assert_int_equal(pickle_parse("file", (uint8_t *)program, size, globals, 3, &p), MANTA_ECORRUPT);
        for (size_t k = 1; k + 1 < size; k++) program[k] = '\x85';
        program[size - 1] = '.';
        assert_int_equal(pickle_parse("file", (uint8_t *)program, size, globals, 3, &p), MANTA_ECORRUPT);
        assert_error_says("too many values");
    }
    free(program);
}

static void the_memo_has_a_limit(void **state)
{
    (void)state;
    const size_t n = PICKLE_MAX_MEMO + 10;
    uint8_t *program = malloc(5 * n + 2);
    pickle p = {0};

    program[0] = 'N';
    for (size_t i = 0; i < n; i++) {
        program[1 + 5 * i] = 'r';
        for (int k = 0; k < 4; k++) program[2 + 5 * i + (size_t)k] = (uint8_t)(i >> 8 * k);
    }
    program[1 + 5 * n] = '.';
    assert_int_equal(pickle_parse("file", program, 5 * n + 2, globals, 3, &p), MANTA_ECORRUPT);
    assert_error_says("remembers too much");
    free(program);
}

/* A tuple in a tuple, 2,998 deep: the value, its operations, the end. */
static manta_status parse_deep_tuple(void *ctx)
{
    static char program[3000];
    pickle p = {0};

    (void)ctx;
    memset(program, '\x85', sizeof program);
    program[0] = 'N';
    program[sizeof program - 1] = '.';
    manta_status st = pickle_parse("file", (uint8_t *)program, sizeof program, globals, 3, &p);
    pickle_release(&p);
    return st;
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    assert_true(alloc_fail_each(parse_deep_tuple, NULL) > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_programs_are_refused),        cmocka_unit_test(values_are_read),
        cmocka_unit_test(structures_of_torch_are_read),    cmocka_unit_test(a_list_may_hold_itself),
        cmocka_unit_test(endless_programs_end_at_a_limit), cmocka_unit_test(the_memo_has_a_limit),
        cmocka_unit_test(failed_allocations_are_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
