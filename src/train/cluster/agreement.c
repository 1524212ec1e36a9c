/* agreement.c - see agreement.h. */
#include "train/cluster/agreement.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "data/digest.h"

enum { DATA_KEY = 0x6d616e74 }; /* of the samples that are compared: the same for all */

/* ---- words ---- */

void agreement_add(agreement *a, const char *name, const char *format, ...)
{
    size_t room = sizeof a->text - a->n, n;
    char line[256];
    va_list ap;

    n = (size_t)snprintf(line, sizeof line, "%.60s\t", name);
    va_start(ap, format);
    (void)vsnprintf(line + n, sizeof line - n - 1, format, ap);
    va_end(ap);
    n += strcspn(line + n, "\n");
    line[n++] = '\n';
    if (n > room) return;
    memcpy(a->text + a->n, line, n);
    a->n += n;
}

/* As short as it can be for a person, and exact: numbers that differ give different texts. */
static void add_number(agreement *a, const char *name, double v)
{
    char text[32];

    snprintf(text, sizeof text, "%.9g", v);
    if (strtod(text, NULL) != v) snprintf(text, sizeof text, "%.17g", v);
    agreement_add(a, name, "%s", text);
}

/* ---- what a session has ---- */

static uint32_t add_text(uint32_t crc, const char *text)
{
    if (!text) text = "";
    return crc32c(crc, text, strlen(text) + 1);
}

static uint32_t add_int(uint32_t crc, int64_t v)
{
    return crc32c(crc, &v, sizeof v);
}

static uint32_t add_double(uint32_t crc, double v)
{
    return crc32c(crc, &v, sizeof v);
}

/* One option of a layer. How weights are begun is not one: weights are compared themselves. */
static uint32_t add_field(uint32_t crc, const manta_field *f, const char *options)
{
    const void *at = options + f->offset;
    const char *text;
    const float *values;
    int64_t n = 0;

    switch (f->kind) {
    case MANTA_FIELD_INT: return crc32c(crc, at, sizeof(int64_t));
    case MANTA_FIELD_INTS: return crc32c(crc, at, MANTA_MAX_DIMS * sizeof(int64_t));
    case MANTA_FIELD_PAIR: return crc32c(crc, at, 2 * sizeof(int64_t));
    case MANTA_FIELD_PAIRS: return crc32c(crc, at, 4 * sizeof(int64_t));
    case MANTA_FIELD_FLOAT:
    case MANTA_FIELD_FLOAT_DEFAULT: return crc32c(crc, at, sizeof(double));
    case MANTA_FIELD_BOOL:
    case MANTA_FIELD_NOT: return crc32c(crc, at, sizeof(bool));
    case MANTA_FIELD_REG: return crc32c(crc, at, sizeof(manta_regularizer));
    case MANTA_FIELD_TEXT: memcpy(&text, at, sizeof text); return add_text(crc, text);
    case MANTA_FIELD_FLOATS:
        memcpy(&values, at, sizeof values);
        memcpy(&n, options + f->extra, sizeof n);
        return values && n > 0 ? crc32c(crc, values, (size_t)n * sizeof *values) : crc;
    case MANTA_FIELD_INIT: break;
    }
    return crc;
}

static uint32_t digest_layers(uint32_t crc, const manta_model *m)
{
    for (int i = 0; i < m->n_layers; i++) {
        const manta_layer *l = m->layers[i];
        crc = add_int(crc, l->frozen);
        if (l->inner) crc = digest_layers(crc, l->inner);
        if (!l->cls) continue;
        crc = add_text(crc, l->cls->name);
        for (int k = 0; k < l->cls->n_fields && l->options; k++)
            crc = add_field(crc, &l->cls->fields[k], l->options);
    }
    return crc;
}

/* Of layers with their options, of operations with their connections, of variables. */
static uint32_t digest_model(const manta_model *m)
{
    uint32_t crc = digest_layers(0, m);

    for (int i = 0; i < m->n_nodes; i++) {
        const graph_node *n = &m->nodes[i];
        crc = add_text(crc, n->op->name);
        for (int k = 0; k < n->n_in; k++) crc = add_int(crc, n->in[k]);
    }
    for (int i = 0; i < m->n_variables; i++) {
        const graph_variable *v = &m->variables[i];
        for (int k = 0; k < v->ndim; k++) crc = add_int(crc, v->shape[k]);
        crc = add_int(crc, graph_variable_frozen(m, v));
    }
    return crc;
}

static uint32_t digest_losses(const manta_session *s)
{
    uint32_t crc = 0;

    for (int i = 0; i < s->n_losses; i++) {
        const manta_loss *o = &s->losses[i];
        crc = add_int(add_int(add_text(crc, o->name), o->from_logits), o->reduction);
        crc = add_double(crc, (double)o->label_smoothing);
        crc = add_double(add_double(crc, (double)o->delta), (double)o->weight);
    }
    return crc;
}

static uint32_t digest_metrics(const manta_session *s)
{
    uint32_t crc = 0;

    for (int i = 0; i < s->n_metrics; i++) {
        const manta_metric *m = &s->metrics[i];
        crc = add_int(add_int(add_text(crc, m->name), m->k), m->output);
        crc = add_double(crc, (double)m->threshold);
    }
    return crc;
}

static void add_schedule(agreement *a, const manta_schedule *s)
{
    const double reals[] = {s->initial_learning_rate, s->decay_rate,        s->alpha,
                            s->warmup_target,         s->end_learning_rate, s->power};
    const int64_t whole[] = {s->kind,  s->decay_steps,  s->staircase,
                             s->cycle, s->warmup_steps, s->n_boundaries};
    uint32_t crc = crc32c(crc32c(0, reals, sizeof reals), whole, sizeof whole);

    for (int i = 0; i < s->n_boundaries; i++) crc = add_int(crc, s->boundaries[i]);
    for (int i = 0; s->n_boundaries && i <= s->n_boundaries; i++) crc = add_double(crc, s->values[i]);
    agreement_add(a, "schedule's digest", "%08x", crc);
}

static void add_optimizer(agreement *a, const manta_optimizer *o)
{
    const struct {
        const char *name;
        double value;
    } options[] = {{"momentum", o->momentum},
                   {"dampening", o->dampening},
                   {"nesterov", o->nesterov},
                   {"beta_1", o->beta_1},
                   {"beta_2", o->beta_2},
                   {"epsilon", o->epsilon},
                   {"rho", o->rho},
                   {"amsgrad", o->amsgrad},
                   {"centered", o->centered},
                   {"weight_decay", o->weight_decay},
                   {"clipvalue", o->clipvalue},
                   {"clipnorm", o->clipnorm},
                   {"global_clipnorm", o->global_clipnorm},
                   {"gradient_accumulation_steps", o->gradient_accumulation_steps},
                   {"use_ema", o->use_ema},
                   {"ema_momentum", o->ema_momentum},
                   {"ema_overwrite_frequency", o->ema_overwrite_frequency}};

    agreement_add(a, "optimizer", "%s", manta_optimizer_name(o));
    add_number(a, "learning rate", o->learning_rate);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        add_number(a, options[i].name, options[i].value);
    add_schedule(a, &o->schedule);
}

void agreement_add_session(agreement *a, const manta_session *s)
{
    agreement_add(a, "model", "%.64s of %lld parameters", s->m->name, (long long)manta_session_params(s));
    agreement_add(a, "layers' digest", "%08x", digest_model(s->m));
    agreement_add(a, "precision", "%s", kernels_precision_name(s->k->precision));
    add_optimizer(a, &s->opt);
    agreement_add(a, "losses' digest", "%08x", digest_losses(s));
    agreement_add(a, "metrics' digest", "%08x", digest_metrics(s));
    agreement_add(a, "number of shards", "%d%s", s->shards, s->meets ? " with common statistics" : "");
}

manta_status agreement_add_data(agreement *a, const char *what, const feed_source *f)
{
    const manta_loader_options *o = &f->lo;
    char name[64];
    uint64_t digest;
    uint32_t order = add_int(add_int(0, o->sampler), o->drop_last);

    TRY(data_digest(f->d, DATA_KEY, &digest));
    if (f->class_weight)
        order = crc32c(order, f->class_weight, (size_t)f->n_classes * sizeof *f->class_weight);
    snprintf(name, sizeof name, "number of samples in the %s", what);
    agreement_add(a, name, "%lld", (long long)manta_dataset_count(f->d));
    snprintf(name, sizeof name, "digest of the %s", what);
    agreement_add(a, name, "%016llx", (unsigned long long)digest);
    snprintf(name, sizeof name, "seed of the order of the %s", what);
    agreement_add(a, name, "%llu", (unsigned long long)o->seed);
    snprintf(name, sizeof name, "digest of the order of the %s", what);
    agreement_add(a, name, "%08x", order);
    return MANTA_OK;
}

/* ---- what others have ---- */

/* The next line of n bytes at `from`: its length, without the end. */
static size_t line_length(const char *from, size_t n)
{
    const char *end = memchr(from, '\n', n);

    return end ? (size_t)(end - from) : n;
}

/* The line that begins with `name` and a tab; NULL: none does. */
static const char *find_line(const char *from, size_t n, const char *name, size_t *length)
{
    size_t skip = strlen(name);

    while (n) {
        size_t k = line_length(from, n);
        if (k > skip && !memcmp(from, name, skip) && from[skip] == '\t') {
            *length = k;
            return from;
        }
        from += k + (k < n);
        n -= k + (k < n);
    }
    return NULL;
}

/* What stands behind the name in a line, for a sentence. */
static void value_of(const char *line, size_t n, size_t skip, char *out, size_t size)
{
    size_t k = 0;

    if (!line) {
        snprintf(out, size, "not said");
        return;
    }
    for (size_t i = skip + 1; i < n && k + 1 < size; i++)
        out[k++] = line[i] >= ' ' && line[i] <= '~' ? line[i] : '?';
    out[k] = '\0';
}

/* The name at the beginning of a line of n bytes. */
static void name_of(const char *line, size_t n, char *out, size_t size)
{
    const char *tab = memchr(line, '\t', n);
    size_t k = tab ? (size_t)(tab - line) : n;

    if (k >= size) k = size - 1;
    for (size_t i = 0; i < k; i++) out[i] = line[i] >= ' ' && line[i] <= '~' ? line[i] : '?';
    out[k] = '\0';
}

manta_status agreement_compare(const char *who, const void *theirs, size_t n_theirs, const char *us,
                               const void *ours, size_t n_ours)
{
    const char *at = ours;

    for (size_t left = n_ours; left;) {
        size_t n = line_length(at, left), nb = 0;
        char name[64], mine[120], other[120];
        const char *line;
        name_of(at, n, name, sizeof name);
        line = find_line(theirs, n_theirs, name, &nb);
        if (!line || n != nb || memcmp(at, line, n)) {
            value_of(at, n, strlen(name), mine, sizeof mine);
            value_of(line, nb, strlen(name), other, sizeof other);
            return manta_fail(MANTA_EPERM, "%s is at another training than %s: its %s is %s, not %s", who, us,
                              name, other, mine);
        }
        at += n + (n < left);
        left -= n + (n < left);
    }
    return MANTA_OK;
}
