/* events_values.c - what event files say: numbers, histograms, texts, images, the
 * graph and the hyper-parameters.
 *
 *   Summary { 1: repeated Value { 1: tag  2: number | 4: image | 5: histogram | 8: tensor  9: metadata } }
 *
 * Scalars, histograms and images have the older form of a value (a number, not
 * a tensor of one), because both readers know it: the web page, and
 * EventAccumulator, which shows tensors under another heading.
 *
 * Each function makes one event in the writer's record and has it written whole;
 * what cannot be written is refused before the record is begun, but for an image
 * that there is no memory for, which leaves no record. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "data/convert.h"
#include "format/codec/elements.h"
#include "format/codec/proto.h"
#include "format/tensorboard/events_writer.h"

enum { BUCKETS = 30 };

enum { /* enums of the format */
       DT_STRING = 7,
       CLASS_TENSOR = 2,
};

/* Readers in Python refuse a whole record for one bad byte in a name. */
static bool is_utf8(const char *s)
{
    const unsigned char *p = (const unsigned char *)s;

    while (*p) {
        int more = *p < 0x80                 ? 0
                   : *p >= 0xc2 && *p < 0xe0 ? 1
                   : (*p & 0xf0) == 0xe0     ? 2
                   : *p >= 0xf0 && *p < 0xf5 ? 3
                                             : -1;
        if (more < 0) return false;
        if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
            (*p == 0xf4 && p[1] > 0x8f)) {
            return false; /* overlong, a surrogate, or beyond the last character */
        }
        for (p++; more > 0; more--, p++) {
            if ((*p & 0xc0) != 0x80) return false;
        }
    }
    return true;
}

static manta_status check_text(const manta_events *e, const char *what, const char *text)
{
    if (is_utf8(text)) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s: %s is no UTF-8", e->path, what);
}

static manta_status check_tag(const manta_events *e, const char *tag)
{
    if (!tag || !tag[0]) return manta_fail(MANTA_EINVAL, "%s: a tag is empty", e->path);
    return check_text(e, "a tag", tag);
}

static void add_metadata(buf *b, const char *plugin, const void *content, size_t n, int data_class)
{
    size_t m = proto_begin(b, 9), p = proto_begin(b, 1);

    proto_add_text(b, 1, plugin);
    if (n) proto_add_bytes(b, 2, content, n);
    proto_end(b, p);
    if (data_class) proto_add_int(b, 4, data_class);
    proto_end(b, m);
}

/* ---- numbers and texts ------------------------------------------------------------------- */

manta_status manta_events_scalars(manta_events *e, int64_t step, int n, const char *const *tags,
                                  const double *values)
{
    REFUSE_NULL(e);
    REFUSE_ARRAY(n, tags);
    REFUSE_ARRAY(n, values);

    for (int i = 0; i < n; i++) TRY(check_tag(e, tags[i]));
    if (n < 1) return MANTA_OK;
    events_begin_summary(e, step);
    for (int i = 0; i < n; i++) {
        size_t v = proto_begin(&e->record, 1);
        proto_add_text(&e->record, 1, tags[i]);
        proto_add_float(&e->record, 2, (float)values[i]);
        proto_end(&e->record, v);
    }
    return events_end_summary(e);
}

manta_status manta_events_scalar(manta_events *e, const char *tag, int64_t step, double value)
{
    REFUSE_NULL(e);
    REFUSE_NULL(tag);
    return manta_events_scalars(e, step, 1, &tag, &value);
}

typedef struct spread {
    double low, high, sum, squares, width;
    int64_t n;
    double counts[BUCKETS];
    bool counting;
    manta_dtype dtype; /* of what is visited */
} spread;

static void spread_add(spread *s, double v)
{
    if (!isfinite(v)) return;
    if (s->counting) {
        int64_t k = s->width > 0 ? (int64_t)((v - s->low) / s->width) : 0;
        s->counts[k < 0 ? 0 : k >= BUCKETS ? BUCKETS - 1 : k]++;
        return;
    }
    if (s->n == 0 || v < s->low) s->low = v;
    if (s->n == 0 || v > s->high) s->high = v;
    s->sum += v;
    s->squares += v * v;
    s->n++;
}

static manta_status visit_run(void *ctx, const void *data, size_t n)
{
    spread *s = ctx;

    for (size_t k = 0; k < n / manta_dtype_size(s->dtype); k++)
        spread_add(s, convert_get(data, s->dtype, (int64_t)k));
    return MANTA_OK;
}

static void each_element(const manta_array *a, spread *s)
{
    s->dtype = a->dtype;
    manta_status st = elements_each(a, visit_run, s);
    assert(!st); /* visiting does not fail */
    (void)st;
}

static void add_histogram(buf *b, const spread *s)
{
    size_t h = proto_begin(b, 5), m;
    int n = s->n == 0 ? 0 : s->width > 0 ? BUCKETS : 1;

    proto_add_double(b, 1, s->low);
    proto_add_double(b, 2, s->high);
    proto_add_double(b, 3, (double)s->n);
    proto_add_double(b, 4, s->sum);
    proto_add_double(b, 5, s->squares);
    m = proto_begin(b, 6);
    for (int i = 0; i < n; i++) {
        double limit = i + 1 == n ? s->high : s->low + (i + 1) * s->width;
        buf_add(b, &limit, sizeof limit); /* this machine is little endian */
    }
    proto_end(b, m);
    m = proto_begin(b, 7);
    for (int i = 0; i < n; i++) buf_add(b, &s->counts[i], sizeof s->counts[i]);
    proto_end(b, m);
    proto_end(b, h);
}

manta_status manta_events_histogram(manta_events *e, const char *tag, int64_t step, const manta_array *values)
{
    REFUSE_NULL(e);
    REFUSE_NULL(tag);
    REFUSE_NULL(values);

    spread s = {0};

    TRY(check_tag(e, tag));
    if (!manta_dtype_size(values->dtype))
        return manta_fail(MANTA_EINVAL, "histogram '%s': the array has no element type", tag);
    each_element(values, &s);
    s.width = s.high / BUCKETS - s.low / BUCKETS; /* the difference itself may overflow */
    s.counting = true;
    each_element(values, &s);
    events_begin_summary(e, step);
    size_t v = proto_begin(&e->record, 1);
    proto_add_text(&e->record, 1, tag);
    add_histogram(&e->record, &s);
    proto_end(&e->record, v);
    return events_end_summary(e);
}

manta_status manta_events_text(manta_events *e, const char *tag, int64_t step, const char *text)
{
    REFUSE_NULL(e);
    REFUSE_NULL(tag);
    REFUSE_NULL(text);

    TRY(check_tag(e, tag));
    TRY(check_text(e, "a text", text));
    events_begin_summary(e, step);
    buf *b = &e->record;
    size_t v = proto_begin(b, 1);
    proto_add_text(b, 1, tag);
    size_t t = proto_begin(b, 8);
    proto_add_int(b, 1, DT_STRING);
    proto_end(b, proto_begin(b, 2)); /* the shape of a scalar */
    proto_add_text(b, 8, text);
    proto_end(b, t);
    add_metadata(b, "text", NULL, 0, CLASS_TENSOR);
    proto_end(b, v);
    return events_end_summary(e);
}

/* ---- images ---------------------------------------------------------------------------- */

static manta_status check_image(const char *tag, const manta_array *a, int64_t dims[4])
{
    char text[96];
    int64_t c;

    dims[0] = a->ndim == 4 ? a->shape[0] : 1;
    if (a->ndim < 2 || a->ndim > 4) goto bad;
    const int64_t *s = a->shape + (a->ndim == 4);
    dims[1] = s[0];
    dims[2] = s[1];
    dims[3] = c = a->ndim == 2 ? 1 : s[2];
    if ((c != 1 && c != 3 && c != 4) || dims[1] < 1 || dims[2] < 1 || dims[1] > 1 << 15 || dims[2] > 1 << 15)
        goto bad;
    if (a->dtype != MANTA_DTYPE_U8 && a->dtype != MANTA_DTYPE_F32) {
        return manta_fail(MANTA_EINVAL, "image '%s': its elements are %s, expected uint8 or float32", tag,
                          manta_dtype_name(a->dtype));
    }
    if (manta_array_is_contiguous(a)) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "image '%s': its elements do not lie row-major", tag);
bad:
    return manta_fail(
        MANTA_EINVAL,
        "image '%s': its shape is %s, expected (height, width), (height, width, channels) or (n, height, "
        "width, channels) with 1, 3 or 4 channels",
        tag, manta_shape_text(a->ndim, a->shape, text, sizeof text));
}

static void to_bytes(const float *from, int64_t n, uint8_t *to)
{
    for (int64_t i = 0; i < n; i++) {
        float v = from[i] * 255.0f + 0.5f;
        to[i] = v >= 255 ? 255 : v >= 0 ? (uint8_t)v : 0; /* NaN is 0 */
    }
}

static manta_status add_image(buf *b, const char *tag, const int64_t dims[4], const uint8_t *pixels)
{
    buf png = {0};
    manta_status st = events_png(dims[1], dims[2], dims[3], pixels, &png);

    if (!st) st = buf_try_reserve(b, png.n + strlen(tag) + 128, "an image");
    if (!st) {
        size_t v = proto_begin(b, 1);
        proto_add_text(b, 1, tag);
        size_t m = proto_begin(b, 4);
        proto_add_int(b, 1, dims[1]);
        proto_add_int(b, 2, dims[2]);
        proto_add_int(b, 3, dims[3]);
        proto_add_bytes(b, 4, png.at, png.n);
        proto_end(b, m);
        proto_end(b, v);
    }
    buf_release(&png);
    return st;
}

manta_status manta_events_image(manta_events *e, const char *tag, int64_t step, const manta_array *image)
{
    REFUSE_NULL(e);
    REFUSE_NULL(tag);
    REFUSE_NULL(image);

    int64_t dims[4] = {0}, n;
    uint8_t *bytes = NULL;
    manta_status st = MANTA_OK;

    TRY(check_tag(e, tag));
    TRY(check_image(tag, image, dims));
    n = dims[1] * dims[2] * dims[3];
    if (image->dtype == MANTA_DTYPE_F32 && !(bytes = mem_try_raw((size_t)n))) {
        return manta_fail(MANTA_ENOMEM, "image '%s': no memory for %lld bytes", tag, (long long)n);
    }
    events_begin_summary(e, step);
    for (int64_t i = 0; i < dims[0] && !st; i++) {
        char *name = image->ndim == 4 ? mem_printf("%s/%lld", tag, (long long)i) : mem_strdup(tag);
        if (bytes) to_bytes((const float *)image->data + i * n, n, bytes);
        st = add_image(&e->record, name, dims, bytes ? bytes : (const uint8_t *)image->data + i * n);
        mem_free(name);
    }
    mem_try_free(bytes);
    return st ? st : events_end_summary(e);
}

/* ---- the graph and the hyper-parameters -------------------------------------------------- */

manta_status manta_events_graph(manta_events *e, const manta_model *m)
{
    REFUSE_NULL(e);
    REFUSE_NULL(m);

    events_begin(e, 0);
    size_t g = proto_begin(&e->record, 4);
    events_graph_def(m, &e->record);
    proto_end(&e->record, g);
    return events_end(e);
}

/* A value that is nothing but metadata; the page asks for it by its tag. */
static void add_hparams_value(buf *b, const char *tag, const buf *content)
{
    size_t v = proto_begin(b, 1);

    proto_add_text(b, 1, tag);
    add_metadata(b, "hparams", content->at, content->n, CLASS_TENSOR);
    proto_end(b, v);
}

static void add_experiment(buf *b, int n, const manta_hparam *h, int n_metrics, const char *const *tags)
{
    static const int types[] = {[MANTA_HPARAM_TEXT] = 1, [MANTA_HPARAM_BOOL] = 2, [MANTA_HPARAM_NUMBER] = 3};
    size_t x = proto_begin(b, 2), m, t;

    for (int i = 0; i < n; i++) {
        m = proto_begin(b, 4);
        proto_add_text(b, 1, h[i].name);
        proto_add_int(b, 4, types[h[i].kind]);
        proto_end(b, m);
    }
    for (int i = 0; i < n_metrics; i++) {
        m = proto_begin(b, 5);
        t = proto_begin(b, 1);
        proto_add_text(b, 2, tags[i]);
        proto_end(b, t);
        proto_end(b, m);
    }
    proto_end(b, x);
}

static void add_session_start(buf *b, int n, const manta_hparam *h)
{
    size_t x = proto_begin(b, 3), m, v;

    for (int i = 0; i < n; i++) {
        m = proto_begin(b, 1);
        proto_add_text(b, 1, h[i].name);
        v = proto_begin(b, 2);
        switch (h[i].kind) {
        case MANTA_HPARAM_NUMBER: proto_add_double(b, 2, h[i].number); break;
        case MANTA_HPARAM_TEXT: proto_add_text(b, 3, h[i].text ? h[i].text : ""); break;
        case MANTA_HPARAM_BOOL: proto_add_int(b, 4, h[i].number != 0); break;
        }
        proto_end(b, v);
        proto_end(b, m);
    }
    proto_add_double(b, 5, (double)clock_wall_ns() * 1e-9);
    proto_end(b, x);
}

manta_status manta_events_hparams(manta_events *e, int n, const manta_hparam *hparams, int n_metrics,
                                  const char *const *metric_tags)
{
    REFUSE_NULL(e);
    REFUSE_ARRAY(n, hparams);
    REFUSE_ARRAY(n_metrics, metric_tags);

    buf experiment = {0}, start = {0};

    for (int i = 0; i < n; i++) {
        if (!hparams[i].name || !hparams[i].name[0])
            return manta_fail(MANTA_EINVAL, "hyper-parameter %d has no name", i);
        if (hparams[i].kind < MANTA_HPARAM_NUMBER || hparams[i].kind > MANTA_HPARAM_BOOL) {
            return manta_fail(MANTA_EINVAL,
                              "hyper-parameter '%s' is of no kind, expected number, text or bool",
                              hparams[i].name);
        }
        TRY(check_text(e, "a hyper-parameter's name", hparams[i].name));
        if (hparams[i].text) TRY(check_text(e, "a hyper-parameter", hparams[i].text));
    }
    for (int i = 0; i < n_metrics; i++) TRY(check_tag(e, metric_tags[i]));
    add_experiment(&experiment, n, hparams, n_metrics, metric_tags);
    add_session_start(&start, n, hparams);
    events_begin_summary(e, 0);
    add_hparams_value(&e->record, "_hparams_/experiment", &experiment);
    add_hparams_value(&e->record, "_hparams_/session_start_info", &start);
    buf_release(&experiment);
    buf_release(&start);
    return events_end_summary(e);
}

manta_status manta_events_hparams_end(manta_events *e, bool success)
{
    REFUSE_NULL(e);

    buf content = {0};
    size_t m = proto_begin(&content, 4);

    proto_add_int(&content, 1, success ? 1 : 2);
    proto_add_double(&content, 2, (double)clock_wall_ns() * 1e-9);
    proto_end(&content, m);
    events_begin_summary(e, 0);
    add_hparams_value(&e->record, "_hparams_/session_end_info", &content);
    buf_release(&content);
    return events_end_summary(e);
}
