/* example.c - TensorFlow's Example. */
#include "format/tfrecord/example.h"

/* The entry's two fields; a Feature given twice is merged, which for a oneof
 * means that the last list counts. */
static bool read_entry(proto_reader r, example_feature *out)
{
    proto_field f, v;
    proto_step s;

    *out = (example_feature){.name = ""};
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1 && f.wire == PROTO_BYTES) {
            out->name = (const char *)f.at;
            out->name_n = f.n;
        } else if (f.number == 2 && f.wire == PROTO_BYTES) {
            proto_reader value = proto_inside(&f);
            while ((s = proto_next(&value, &v)) == PROTO_FIELD) {
                if (v.number > 3 || v.wire != PROTO_BYTES) continue;
                out->kind = (example_kind)v.number;
                out->list = proto_inside(&v);
            }
            if (s == PROTO_BAD) return false;
        }
    }
    return s == PROTO_END;
}

proto_step example_next(example_reader *r, example_feature *out)
{
    proto_field f;
    proto_step s;

    for (;;) {
        while ((s = proto_next(&r->features, &f)) == PROTO_FIELD) {
            if (f.number != 1 || f.wire != PROTO_BYTES) continue;
            return read_entry(proto_inside(&f), out) ? PROTO_FIELD : PROTO_BAD;
        }
        if (s == PROTO_BAD) return s;
        do s = proto_next(&r->outer, &f);
        while (s == PROTO_FIELD && (f.number != 1 || f.wire != PROTO_BYTES));
        if (s != PROTO_FIELD) return s;
        r->features = proto_inside(&f);
    }
}

int64_t example_floats(const example_feature *x, int64_t most, float *out)
{
    proto_reader r = x->list;
    proto_field f;
    proto_step s;
    int64_t n = 0;

    if (x->kind != EXAMPLE_FLOATS) return -1;
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number != 1) continue;
        if (f.wire == PROTO_FIXED32) {
            if (n < most) out[n] = proto_float(&f);
            n++;
        } else if (f.wire == PROTO_BYTES) {
            int64_t k = (int64_t)(f.n / 4);
            if (f.n % 4) return -1;
            int64_t fit = n < most ? (k < most - n ? k : most - n) : 0;
            if (fit) memcpy(out + n, f.at, (size_t)fit * 4); /* this machine is little endian */
            n += k;
        } else {
            return -1;
        }
    }
    return s == PROTO_END ? n : -1;
}

int64_t example_ints(const example_feature *x, int64_t most, int64_t *out)
{
    proto_reader r = x->list;
    proto_field f;
    proto_step s;
    int64_t n = 0;

    if (x->kind != EXAMPLE_INTS) return -1;
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        uint64_t v;
        if (f.number != 1) continue;
        if (f.wire == PROTO_VARINT) {
            if (n < most) out[n] = (int64_t)f.value;
            n++;
        } else if (f.wire == PROTO_BYTES) {
            proto_reader packed = proto_inside(&f);
            for (; packed.at < packed.end; n++) {
                if (!proto_take_varint(&packed, &v)) return -1;
                if (n < most) out[n] = (int64_t)v;
            }
        } else {
            return -1;
        }
    }
    return s == PROTO_END ? n : -1;
}

int64_t example_bytes(const example_feature *x, const uint8_t **at, size_t *size)
{
    proto_reader r = x->list;
    proto_field f;
    proto_step s;
    int64_t n = 0;

    if (x->kind != EXAMPLE_BYTES) return -1;
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number != 1) continue;
        if (f.wire != PROTO_BYTES) return -1;
        if (n++ == 0) {
            *at = f.at;
            *size = f.n;
        }
    }
    return s == PROTO_END ? n : -1;
}

int64_t example_count(const example_feature *x)
{
    const uint8_t *at;
    size_t n;

    switch (x->kind) {
    case EXAMPLE_BYTES: return example_bytes(x, &at, &n);
    case EXAMPLE_FLOATS: return example_floats(x, 0, NULL);
    case EXAMPLE_INTS: return example_ints(x, 0, NULL);
    case EXAMPLE_NOTHING: break;
    }
    return 0;
}

/* ---- writing ---- */

example_writer example_begin(buf *b)
{
    return (example_writer){b, proto_begin(b, 1)};
}

void example_end(example_writer *w)
{
    proto_end(w->b, w->mark);
}

/* The four messages around a feature's values. */
typedef struct nest {
    size_t entry, feature, list;
} nest;

static nest open_feature(buf *b, const char *name, example_kind kind)
{
    nest t = {.entry = proto_begin(b, 1)};

    proto_add_text(b, 1, name);
    t.feature = proto_begin(b, 2);
    t.list = proto_begin(b, (uint32_t)kind);
    return t;
}

static void close_feature(buf *b, nest t)
{
    proto_end(b, t.list);
    proto_end(b, t.feature);
    proto_end(b, t.entry);
}

void example_add_floats(example_writer *w, const char *name, int64_t n, const float *v)
{
    nest t = open_feature(w->b, name, EXAMPLE_FLOATS);

    if (n > 0) proto_add_bytes(w->b, 1, v, (size_t)n * sizeof *v);
    close_feature(w->b, t);
}

void example_add_ints(example_writer *w, const char *name, int64_t n, const int64_t *v)
{
    nest t = open_feature(w->b, name, EXAMPLE_INTS);

    if (n > 0) {
        size_t packed = proto_begin(w->b, 1);
        for (int64_t i = 0; i < n; i++) proto_add_varint(w->b, (uint64_t)v[i]);
        proto_end(w->b, packed);
    }
    close_feature(w->b, t);
}

void example_add_bytes(example_writer *w, const char *name, const void *data, size_t n)
{
    nest t = open_feature(w->b, name, EXAMPLE_BYTES);

    proto_add_bytes(w->b, 1, data, n);
    close_feature(w->b, t);
}
