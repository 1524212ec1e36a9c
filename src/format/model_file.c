/* model_file.c - the table of formats, and the choice among them. */
#include "format/model/model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "format/onnx/onnx.h"
#include "format/tensorflow/bundle_model.h"
#include "os/file.h"
#include "os/sys.h"

/* In the order in which equal claims are settled. */
static const model_format *const formats[] = {
    &model_keras, &model_weights_shards, &model_keras_config, &model_weights_h5, &model_legacy_h5,
    &model_npz,   &model_safetensors,    &model_pt,           &model_tf,         &model_onnx,
};

#define N_FORMATS (int)(sizeof formats / sizeof *formats)

/* The first bytes of a regular file; 0 when there are none to be had. */
static size_t read_head(const char *path, uint8_t head[MODEL_HEAD])
{
    file_info info;
    size_t n = 0;
    int fd;

    /* A pipe would lose what is read here. */
    if (file_stat(path, &info) || !info.is_file) return 0;
    do fd = os->open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) return 0;
    while (n < MODEL_HEAD) {
        ssize_t got = os->pread(fd, head + n, MODEL_HEAD - n, (off_t)n);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        n += (size_t)got;
    }
    os->close(fd);
    return n;
}

static const model_format *format_named(const char *name)
{
    for (int i = 0; i < N_FORMATS; i++) {
        if (!strcmp(formats[i]->name, name)) return formats[i];
    }
    return NULL;
}

/* The format that claims the file most surely. */
static const model_format *guess_format(const char *path)
{
    uint8_t head[MODEL_HEAD];
    size_t n = read_head(path, head);
    const model_format *best = NULL;
    model_match match = MODEL_NO;

    for (int i = 0; i < N_FORMATS; i++) {
        model_match m = formats[i]->probe(path, head, n);
        if (m > match) {
            match = m;
            best = formats[i];
        }
    }
    return best;
}

static manta_status fail_with_list(manta_status code, const char *path, const char *what, bool writes)
{
    buf list = {0};
    manta_status st;

    for (int i = 0; i < N_FORMATS; i++) {
        if (writes && !formats[i]->write) continue;
        buf_printf(&list, "%s%s", list.n ? ", " : "", formats[i]->ending);
        if (formats[i]->also) buf_printf(&list, ", %s", formats[i]->also);
    }
    st = manta_fail(code, "%s: %s; there are %s", path, what, buf_text(&list));
    buf_release(&list);
    return st;
}

static manta_status no_such_format(const char *path, const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    buf list = {0};
    char hint[SUGGEST_TEXT];
    manta_status st;

    for (int i = 0; i < N_FORMATS; i++) {
        buf_printf(&list, "%s%s", i ? ", " : "", formats[i]->name);
        manta_suggestion_offer(&near, formats[i]->name);
    }
    st = manta_fail(MANTA_ENOENT, "%s: no format is called '%.80s'; there are %s%s", path, name,
                    buf_text(&list), manta_suggestion_text(&near, hint, sizeof hint));
    buf_release(&list);
    return st;
}

manta_status manta_file_read(const char *path, const manta_read_options *options, manta_saved **out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    static const manta_read_options none;
    const manta_read_options *o = options ? options : &none;
    const model_format *f = o->format ? format_named(o->format) : guess_format(path);
    manta_saved *s;
    manta_status st;

    if (!f && o->format) return no_such_format(path, o->format);
    if (!f) {
        file_info info;
        TRY(file_stat(path, &info));
        return fail_with_list(MANTA_EUNSUPPORTED, path,
                              "neither its contents nor its name are of a kind that "
                              "holds a model or weights",
                              false);
    }
    s = saved_make(f);
    if ((st = f->read(path, o, s))) {
        manta_saved_free(s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}

manta_status manta_file_outline(const char *path, manta_outline *out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    const model_format *f;

    if (!path) return manta_fail(MANTA_EINVAL, "manta_file_outline: path is NULL, expected a path");
    if (!out) return manta_fail(MANTA_EINVAL, "manta_file_outline: out is NULL, expected a place");
    f = guess_format(path);
    if (f && f->outline) return f->outline(path, out);
    return manta_fail(MANTA_EUNSUPPORTED, "%s: expected a file that lists the layers of a Keras model", path);
}

manta_status manta_file_write(const char *path, const char *format, const manta_contents *c)
{
    REFUSE_NULL(path);
    REFUSE_NULL(c);

    const model_format *f = NULL;

    if (format && !(f = format_named(format))) return no_such_format(path, format);
    /* The longest ending wins: .weights.h5 is also an .h5. */
    for (int i = 0; !format && i < N_FORMATS; i++) {
        const char *also = formats[i]->also;
        if (!model_path_ends(path, formats[i]->ending) && !(also && model_path_ends(path, also))) continue;
        if (!f || strlen(formats[i]->ending) > strlen(f->ending)) f = formats[i];
    }
    if (!f) return fail_with_list(MANTA_EINVAL, path, "its ending names no format", true);
    if (!f->write) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: %s is read, not written", path, f->about);
    }
    return f->write(path, c);
}

bool manta_file_format_at(int i, manta_file_format *out)
{
    REFUSE_NULL_OR(out, false);

    if (i < 0 || i >= N_FORMATS) return false;
    *out = (manta_file_format){.name = formats[i]->name,
                               .about = formats[i]->about,
                               .ending = formats[i]->ending,
                               .also = formats[i]->also,
                               .writes = formats[i]->write != NULL,
                               .has_model = formats[i]->has_model};
    return true;
}

const char *manta_file_guess(const char *path)
{
    REFUSE_NULL_OR(path, NULL);

    const model_format *f = guess_format(path);

    return f ? f->name : NULL;
}
