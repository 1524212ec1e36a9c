/* pickle.c - the stack machine.
 *
 * The stack holds numbers of values; MARK keeps the height it had in a stack of
 * its own, and no operation reaches below the last mark. Every operation makes
 * at most one value and every byte of the program begins at most one operation,
 * so the program's length bounds all there is; the limits of pickle.h bound it
 * further. */
#include "format/torch/pickle.h"

#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"

enum {
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_NONE = 'N',
    OP_BINPERSID = 'Q',
    OP_REDUCE = 'R',
    OP_SHORT_BINSTRING = 'U',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_BUILD = 'b',
    OP_GLOBAL = 'c',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEM = 's',
    OP_TUPLE = 't',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    OP_EMPTY_TUPLE = ')',
    OP_PROTO = 0x80,
    OP_NEWOBJ = 0x81,
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_EMPTY_SET = 0x8f
};

typedef struct machine {
    const char *name;
    const uint8_t *data;
    size_t size, at;
    size_t op; /* offset of the operation at hand */
    const pickle_global *globals;
    int n_globals;
    pickle p;
    VEC(uint32_t) stack;
    VEC(uint32_t) marks;
    MAP_U64(uint32_t) memo;
    bool done;
} machine;

static manta_status fail_program(const machine *m, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: the pickle at offset %zu %s", m->name, m->op, what);
}

static manta_status take_bytes(machine *m, size_t n, const uint8_t **out)
{
    if (n > m->size - m->at) return fail_program(m, "ends in the middle of an operation");
    *out = m->data + m->at;
    m->at += n;
    return MANTA_OK;
}

static uint64_t le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;

    for (size_t i = n; i > 0; i--) v = v << 8 | p[i - 1];
    return v;
}

/* ---- values and the stack ---- */

static manta_status push_value(machine *m, uint32_t v)
{
    if (m->stack.n + m->marks.n >= PICKLE_MAX_STACK) return fail_program(m, "needs too deep a stack");
    vec_push(&m->stack, v);
    return MANTA_OK;
}

/* A new value; what it owns stays the caller's on failure. */
static manta_status push_new(machine *m, pickle_value v)
{
    pickle *p = &m->p;

    if (m->stack.n + m->marks.n >= PICKLE_MAX_STACK) return fail_program(m, "needs too deep a stack");
    if (p->n == p->cap) {
        uint32_t cap = p->cap ? 2 * p->cap : 256;
        void *more = NULL;
        if (p->n >= PICKLE_MAX_VALUES) return fail_program(m, "makes too many values");
        TRY(mem_try_array(cap, sizeof *p->values, "the values of a pickle", &more));
        if (p->n) memcpy(more, p->values, p->n * sizeof *p->values);
        mem_try_free(p->values);
        p->values = more;
        p->cap = cap;
    }
    p->values[p->n] = v;
    vec_push(&m->stack, p->n++);
    return MANTA_OK;
}

/* How many values lie above the last mark. */
static size_t count_above_mark(const machine *m)
{
    return m->stack.n - (m->marks.n ? vec_last(&m->marks) : 0);
}

static manta_status need_values(const machine *m, size_t n)
{
    return count_above_mark(m) < n ? fail_program(m, "takes more from the stack than there is") : MANTA_OK;
}

static void add_items(pickle_value *v, const uint32_t *items, size_t n)
{
    if (n > v->cap - v->n) {
        uint32_t cap = v->cap ? v->cap : 4;
        while (n > cap - v->n) cap *= 2; /* PICKLE_MAX_STACK and the program's length bound it */
        v->u.items = mem_resize(v->cap ? v->u.items : NULL, cap * sizeof *v->u.items);
        v->cap = cap;
    }
    if (n) memcpy(v->u.items + v->n, items, n * sizeof *items);
    v->n += (uint32_t)n;
}

/* The last n values of the stack become one of that kind. */
static manta_status gather_values(machine *m, pickle_kind kind, size_t n)
{
    pickle_value v = {.kind = kind};

    if (n) add_items(&v, m->stack.at + m->stack.n - n, n);
    m->stack.n -= n;
    manta_status st = push_new(m, v);
    if (st && v.cap) mem_free(v.u.items);
    return st;
}

/* Takes the last mark off; *n values lie above where it was. */
static manta_status pop_mark(machine *m, size_t *n)
{
    if (m->marks.n == 0) return fail_program(m, "looks for a mark that is not there");
    *n = count_above_mark(m);
    (void)vec_pop(&m->marks);
    return MANTA_OK;
}

static pickle_value *value_below_top(machine *m, size_t below)
{
    return &m->p.values[m->stack.at[m->stack.n - 1 - below]];
}

/* ---- numbers and texts ---- */

static manta_status op_int(machine *m, size_t n, bool is_signed)
{
    const uint8_t *p = NULL;
    uint64_t v;

    TRY(take_bytes(m, n, &p));
    v = le(p, n);
    if (is_signed && n < 8 && n > 0 && (p[n - 1] & 0x80)) v |= ~(uint64_t)0 << 8 * n;
    return push_new(m, (pickle_value){.kind = PICKLE_INT, .u.i = (int64_t)v});
}

static manta_status op_long1(machine *m)
{
    const uint8_t *n = NULL;

    TRY(take_bytes(m, 1, &n));
    if (*n > 8) return fail_program(m, "has a whole number of more than 64 bits");
    return op_int(m, *n, true);
}

static manta_status op_float(machine *m)
{
    const uint8_t *p = NULL;
    uint64_t bits = 0;
    pickle_value v = {.kind = PICKLE_FLOAT};

    TRY(take_bytes(m, 8, &p));
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i];
    memcpy(&v.u.f, &bits, 8);
    return push_new(m, v);
}

bool pickle_is_utf8(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint8_t c = p[i];
        size_t more = c < 0x80                ? 0
                      : c >= 0xc2 && c < 0xe0 ? 1
                      : (c & 0xf0) == 0xe0    ? 2
                      : c >= 0xf0 && c < 0xf5 ? 3
                                              : 4;
        if (more == 4 || more > n - i - 1) return false;
        for (size_t k = 1; k <= more; k++) {
            if ((p[i + k] & 0xc0) != 0x80) return false;
        }
        if (more && ((c == 0xe0 && p[i + 1] < 0xa0) || (c == 0xed && p[i + 1] >= 0xa0) ||
                     (c == 0xf0 && p[i + 1] < 0x90) || (c == 0xf4 && p[i + 1] >= 0x90))) {
            return false;
        }
        i += more + 1;
    }
    return true;
}

static manta_status op_text(machine *m, size_t length_bytes)
{
    const uint8_t *p = NULL;
    size_t n;

    TRY(take_bytes(m, length_bytes, &p));
    n = (size_t)le(p, length_bytes);
    TRY(take_bytes(m, n, &p));
    if (!pickle_is_utf8(p, n)) return fail_program(m, "has a text that is not UTF-8");
    return push_new(m, (pickle_value){.kind = PICKLE_TEXT, .n = (uint32_t)n, .u.text = (const char *)p});
}

/* ---- names and calls ---- */

static manta_status take_line(machine *m, const char **out, size_t *n)
{
    const uint8_t *p = m->data + m->at, *end = memchr(p, '\n', m->size - m->at);

    if (!end) return fail_program(m, "ends in the middle of a name");
    *out = (const char *)p;
    *n = (size_t)(end - p);
    m->at += *n + 1;
    return MANTA_OK;
}

static bool same_word(const char *text, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(text, word, n) == 0;
}

/* Text of a hostile file, cut and without control characters, for a sentence. */
static const char *shown_word(const char *text, size_t n, char *buf, size_t size)
{
    size_t k = n < size - 1 ? n : size - 1;

    for (size_t i = 0; i < k; i++) buf[i] = text[i] >= 32 && text[i] < 127 ? text[i] : '?';
    buf[k] = '\0';
    return buf;
}

static manta_status op_global(machine *m)
{
    const char *module = NULL, *name = NULL;
    size_t n_module = 0, n_name = 0;
    char a[80], b[80];

    TRY(take_line(m, &module, &n_module));
    TRY(take_line(m, &name, &n_name));
    for (int i = 0; i < m->n_globals; i++) {
        const pickle_global *g = &m->globals[i];
        if (same_word(module, n_module, g->module) && same_word(name, n_name, g->name)) {
            return push_new(m, (pickle_value){.kind = PICKLE_GLOBAL, .u.i = i});
        }
    }
    return manta_fail(MANTA_EPERM,
                      "%s: the pickle at offset %zu names %s.%s, which is none of the names that describe "
                      "tensors; it is refused, nothing was run",
                      m->name, m->op, shown_word(module, n_module, a, sizeof a),
                      shown_word(name, n_name, b, sizeof b));
}

/* REDUCE and NEWOBJ: function or class, arguments. */
static manta_status op_call(machine *m)
{
    pickle_value *f, *args;
    const pickle_global *g;

    TRY(need_values(m, 2));
    f = value_below_top(m, 1);
    args = value_below_top(m, 0);
    if (f->kind != PICKLE_GLOBAL) {
        return manta_fail(MANTA_EPERM, "%s: the pickle at offset %zu calls what is no function", m->name,
                          m->op);
    }
    if (args->kind != PICKLE_TUPLE) return fail_program(m, "calls with arguments that are no tuple");
    g = &m->globals[f->u.i];
    if (g->use == PICKLE_NAMED) {
        return manta_fail(MANTA_EPERM, "%s: the pickle at offset %zu calls %s.%s, which may only be named",
                          m->name, m->op, g->module, g->name);
    }
    if (g->use == PICKLE_MAKES_DICT) {
        if (args->n) return fail_program(m, "makes a dictionary from arguments");
        m->stack.n -= 2;
        return push_new(m, (pickle_value){.kind = PICKLE_DICT});
    }
    int64_t callee = f->u.i;
    m->stack.at[m->stack.n - 2] = m->stack.at[m->stack.n - 1];
    m->stack.n--;
    TRY(gather_values(m, PICKLE_CALL, 1));
    value_below_top(m, 0)->callee = callee;
    return MANTA_OK;
}

/* Attributes of an object, as state_dict()'s _metadata: no part of the data. */
static manta_status op_build(machine *m)
{
    TRY(need_values(m, 2));
    if (value_below_top(m, 1)->kind != PICKLE_DICT && value_below_top(m, 1)->kind != PICKLE_CALL) {
        return fail_program(m, "sets attributes of what has none");
    }
    m->stack.n--;
    return MANTA_OK;
}

/* ---- containers and the memo ---- */

static manta_status op_extend(machine *m, pickle_kind kind, size_t n)
{
    pickle_value *v;

    TRY(need_values(m, n + 1));
    v = value_below_top(m, n);
    if (v->kind != kind)
        return fail_program(m, kind == PICKLE_LIST ? "appends to no list" : "sets an item of no dictionary");
    if (kind == PICKLE_DICT && n % 2) return fail_program(m, "sets a key without a value");
    add_items(v, m->stack.at + m->stack.n - n, n);
    m->stack.n -= n;
    return MANTA_OK;
}

static manta_status op_extend_marked(machine *m, pickle_kind kind)
{
    size_t n = 0;

    TRY(pop_mark(m, &n));
    return op_extend(m, kind, n);
}

static manta_status op_tuple(machine *m, size_t n)
{
    TRY(need_values(m, n));
    return gather_values(m, PICKLE_TUPLE, n);
}

static manta_status op_tuple_marked(machine *m)
{
    size_t n = 0;

    TRY(pop_mark(m, &n));
    return gather_values(m, PICKLE_TUPLE, n);
}

static manta_status op_get(machine *m, size_t bytes)
{
    const uint8_t *p = NULL;
    const uint32_t *v;

    TRY(take_bytes(m, bytes, &p));
    v = map_u64_find(&m->memo, le(p, bytes));
    if (!v) return fail_program(m, "asks for what was not remembered");
    return push_value(m, *v);
}

/* The place may be any number: it is a key, and costs nothing. */
static manta_status op_put(machine *m, size_t bytes)
{
    const uint8_t *p = NULL;

    TRY(take_bytes(m, bytes, &p));
    TRY(need_values(m, 1));
    if (m->memo.n >= PICKLE_MAX_MEMO) return fail_program(m, "remembers too much");
    *map_u64_put(&m->memo, le(p, bytes)) = m->stack.at[m->stack.n - 1];
    return MANTA_OK;
}

static manta_status op_proto(machine *m)
{
    const uint8_t *p = NULL;

    TRY(take_bytes(m, 1, &p));
    return *p > 5 ? fail_program(m, "has a protocol above 5") : MANTA_OK;
}

static manta_status op_mark(machine *m)
{
    if (m->stack.n + m->marks.n >= PICKLE_MAX_STACK) return fail_program(m, "needs too deep a stack");
    vec_push(&m->marks, (uint32_t)m->stack.n);
    return MANTA_OK;
}

static manta_status op_persistent(machine *m)
{
    TRY(need_values(m, 1));
    return gather_values(m, PICKLE_PERSISTENT, 1);
}

static manta_status op_stop(machine *m)
{
    TRY(need_values(m, 1));
    m->p.root = m->stack.at[m->stack.n - 1];
    m->done = true;
    return MANTA_OK;
}

static manta_status run_operation(machine *m)
{
    const uint8_t *op = NULL;

    m->op = m->at;
    TRY(take_bytes(m, 1, &op));
    switch (*op) {
    case OP_PROTO: return op_proto(m);
    case OP_STOP: return op_stop(m);
    case OP_MARK: return op_mark(m);
    case OP_NONE: return push_new(m, (pickle_value){.kind = PICKLE_NONE});
    case OP_NEWTRUE: return push_new(m, (pickle_value){.kind = PICKLE_BOOL, .u.i = 1});
    case OP_NEWFALSE: return push_new(m, (pickle_value){.kind = PICKLE_BOOL, .u.i = 0});
    case OP_BININT: return op_int(m, 4, true);
    case OP_BININT1: return op_int(m, 1, false);
    case OP_BININT2: return op_int(m, 2, false);
    case OP_LONG1: return op_long1(m);
    case OP_BINFLOAT: return op_float(m);
    case OP_BINUNICODE: return op_text(m, 4);
    case OP_SHORT_BINSTRING: return op_text(m, 1);
    case OP_EMPTY_LIST: return push_new(m, (pickle_value){.kind = PICKLE_LIST});
    case OP_EMPTY_DICT: return push_new(m, (pickle_value){.kind = PICKLE_DICT});
    case OP_EMPTY_SET: return push_new(m, (pickle_value){.kind = PICKLE_SET});
    case OP_EMPTY_TUPLE: return op_tuple(m, 0);
    case OP_TUPLE1: return op_tuple(m, 1);
    case OP_TUPLE2: return op_tuple(m, 2);
    case OP_TUPLE3: return op_tuple(m, 3);
    case OP_TUPLE: return op_tuple_marked(m);
    case OP_APPEND: return op_extend(m, PICKLE_LIST, 1);
    case OP_APPENDS: return op_extend_marked(m, PICKLE_LIST);
    case OP_SETITEM: return op_extend(m, PICKLE_DICT, 2);
    case OP_SETITEMS: return op_extend_marked(m, PICKLE_DICT);
    case OP_BINGET: return op_get(m, 1);
    case OP_LONG_BINGET: return op_get(m, 4);
    case OP_BINPUT: return op_put(m, 1);
    case OP_LONG_BINPUT: return op_put(m, 4);
    case OP_BINPERSID: return op_persistent(m);
    case OP_GLOBAL: return op_global(m);
    case OP_REDUCE: return op_call(m);
    case OP_NEWOBJ: return op_call(m);
    case OP_BUILD: return op_build(m);
    default:
        return manta_fail(MANTA_EPERM,
                          "%s: the pickle at offset %zu has the operation %02x, which is none of those that "
                          "describe tensors",
                          m->name, m->op, *op);
    }
}

manta_status pickle_parse(const char *name, const uint8_t *data, size_t size, const pickle_global *globals,
                          int n_globals, pickle *out)
{
    machine m = {.name = name, .data = data, .size = size, .globals = globals, .n_globals = n_globals};
    manta_status st = MANTA_OK;

    while (!st && !m.done) st = run_operation(&m);
    vec_release(&m.stack);
    vec_release(&m.marks);
    map_u64_release(&m.memo);
    if (st) {
        pickle_release(&m.p);
        return st;
    }
    *out = m.p;
    return MANTA_OK;
}

void pickle_release(pickle *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->values[i].cap) mem_free(p->values[i].u.items);
    }
    mem_try_free(p->values);
    *p = (pickle){0};
}

bool pickle_is_text(const pickle_value *v, const char *text)
{
    return v->kind == PICKLE_TEXT && same_word(v->u.text, v->n, text);
}
