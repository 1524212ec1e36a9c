/* thrift.c - Thrift's compact protocol. */
#include "format/parquet/thrift.h"

void thrift_wrong(thrift *t, const char *what)
{
    if (!t->wrong) t->wrong = what;
}

static uint8_t take_byte(thrift *t)
{
    if (t->wrong) return 0;
    if (t->at >= t->size) {
        thrift_wrong(t, "the structure is cut off");
        return 0;
    }
    return t->data[t->at++];
}

static uint64_t take_varint(thrift *t)
{
    uint64_t v = 0;

    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t b = take_byte(t);
        if (shift == 63 && b > 1) break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return t->wrong ? 0 : v;
    }
    thrift_wrong(t, "a number has more than 64 bits");
    return 0;
}

static int64_t take_zigzag(thrift *t)
{
    uint64_t v = take_varint(t);

    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

static const uint8_t *take_binary(thrift *t, size_t *n)
{
    uint64_t size = take_varint(t);

    *n = 0;
    if (t->wrong) return NULL;
    if (size > t->size - t->at) {
        thrift_wrong(t, "a text is longer than the bytes that follow");
        return NULL;
    }
    const uint8_t *at = t->data + t->at;
    t->at += (size_t)size;
    *n = (size_t)size;
    return at;
}

bool thrift_next(thrift *t, thrift_field *f)
{
    uint8_t b = take_byte(t);

    if (t->wrong || b == THRIFT_STOP) return false;
    int64_t id = b >> 4 ? f->id + (b >> 4) : take_zigzag(t);
    if (t->wrong) return false;
    if ((b & 15) > THRIFT_STRUCT || (b & 15) == THRIFT_STOP || id < INT16_MIN || id > INT16_MAX) {
        thrift_wrong(t, "a field has no known type or number");
        return false;
    }
    f->id = (int32_t)id;
    f->type = (thrift_type)(b & 15);
    return true;
}

static bool expect_that(thrift *t, bool right)
{
    if (!right) thrift_wrong(t, "a field has another type than expected");
    return !t->wrong;
}

static int64_t take_int(thrift *t, thrift_type type)
{
    if (type == THRIFT_I8) return (int8_t)take_byte(t);
    return take_zigzag(t);
}

int64_t thrift_int(thrift *t, const thrift_field *f)
{
    return expect_that(t, f->type >= THRIFT_I8 && f->type <= THRIFT_I64) ? take_int(t, f->type) : 0;
}

bool thrift_bool(thrift *t, const thrift_field *f)
{
    return expect_that(t, f->type == THRIFT_TRUE || f->type == THRIFT_FALSE) && f->type == THRIFT_TRUE;
}

const uint8_t *thrift_binary(thrift *t, const thrift_field *f, size_t *n)
{
    *n = 0;
    return expect_that(t, f->type == THRIFT_BINARY) ? take_binary(t, n) : NULL;
}

bool thrift_struct(thrift *t, const thrift_field *f)
{
    return expect_that(t, f->type == THRIFT_STRUCT);
}

/* The head of a list: every element takes a byte at least, so that more of them
 * than bytes are a lie. */
static size_t take_list(thrift *t, thrift_type *of)
{
    uint8_t b = take_byte(t);
    uint64_t n = b >> 4 == 15 ? take_varint(t) : b >> 4;

    *of = (thrift_type)(b & 15);
    if (!t->wrong && n > t->size - t->at) thrift_wrong(t, "a list is longer than the bytes that follow");
    return t->wrong ? 0 : (size_t)n;
}

size_t thrift_list(thrift *t, const thrift_field *f, thrift_type of)
{
    thrift_type is;

    if (!expect_that(t, f->type == THRIFT_LIST)) return 0;
    size_t n = take_list(t, &is);
    return n == 0 || expect_that(t, is == of) ? n : 0;
}

int64_t thrift_list_int(thrift *t)
{
    return take_zigzag(t);
}

const uint8_t *thrift_list_binary(thrift *t, size_t *n)
{
    return take_binary(t, n);
}

static void skip_struct(thrift *t)
{
    thrift_field f = {0};

    while (thrift_next(t, &f)) thrift_skip(t, f.type);
}

/* A bool stands in its field's head, but takes a byte as an element. */
static void skip_element(thrift *t, thrift_type type)
{
    if (type == THRIFT_TRUE || type == THRIFT_FALSE) {
        take_byte(t);
    } else {
        thrift_skip(t, type);
    }
}

static void skip_list(thrift *t)
{
    thrift_type of;
    size_t n = take_list(t, &of);

    for (size_t i = 0; i < n && !t->wrong; i++) skip_element(t, of);
}

static void skip_map(thrift *t)
{
    uint64_t n = take_varint(t);

    if (t->wrong || n == 0) return;
    uint8_t types = take_byte(t);
    for (uint64_t i = 0; i < n && !t->wrong; i++) {
        skip_element(t, (thrift_type)(types >> 4));
        skip_element(t, (thrift_type)(types & 15));
    }
}

void thrift_skip(thrift *t, thrift_type type)
{
    size_t n;

    if (t->depth >= THRIFT_MAX_DEPTH) thrift_wrong(t, "structures lie too deep in one another");
    if (t->wrong) return;
    t->depth++;
    switch (type) {
    case THRIFT_TRUE:
    case THRIFT_FALSE: break;
    case THRIFT_I8: take_byte(t); break;
    case THRIFT_I16:
    case THRIFT_I32:
    case THRIFT_I64: take_varint(t); break;
    case THRIFT_DOUBLE:
        for (int i = 0; i < 8; i++) take_byte(t);
        break;
    case THRIFT_BINARY: take_binary(t, &n); break;
    case THRIFT_LIST:
    case THRIFT_SET: skip_list(t); break;
    case THRIFT_MAP: skip_map(t); break;
    case THRIFT_STRUCT: skip_struct(t); break;
    default: thrift_wrong(t, "a value has no known type");
    }
    t->depth--;
}
