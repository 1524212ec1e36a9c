/* ps_config_check.c - see ps_config_check.h. */
#include "train/ps/ps_config_check.h"

#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

/* ---- what we have ---- */

static uint32_t add_text(uint32_t crc, const char *text)
{
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

/* Of operations with their order and connections, and of variables. */
static uint32_t digest_model(const manta_model *m)
{
    uint32_t crc = 0;

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

/* All of an optimizer but its kind and rate. */
static uint32_t digest_optimizer(const manta_optimizer *o)
{
    const manta_schedule *s = &o->schedule;
    const double reals[] = {o->momentum,      o->dampening,
                            o->beta_1,        o->beta_2,
                            o->epsilon,       o->rho,
                            o->weight_decay,  o->clipvalue,
                            o->clipnorm,      o->global_clipnorm,
                            o->ema_momentum,  s->initial_learning_rate,
                            s->decay_rate,    s->alpha,
                            s->warmup_target, s->end_learning_rate,
                            s->power};
    const int64_t whole[] = {o->torch,
                             o->nesterov,
                             o->amsgrad,
                             o->centered,
                             o->use_ema,
                             s->kind,
                             s->decay_steps,
                             s->staircase,
                             s->cycle,
                             s->warmup_steps,
                             s->n_boundaries,
                             o->gradient_accumulation_steps,
                             o->ema_overwrite_frequency};
    uint32_t crc = 0;

    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) crc = add_double(crc, reals[i]);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) crc = add_int(crc, whole[i]);
    for (int i = 0; i < s->n_boundaries; i++) crc = add_int(crc, s->boundaries[i]);
    for (int i = 0; s->n_boundaries && i <= s->n_boundaries; i++) crc = add_double(crc, s->values[i]);
    return crc;
}

static uint32_t digest_losses(const manta_session *s)
{
    uint32_t crc = 0;

    for (int i = 0; i < s->n_losses; i++) {
        const manta_loss *o = &s->losses[i];
        crc = add_text(crc, o->name);
        crc = add_int(crc, o->from_logits);
        crc = add_int(crc, o->reduction);
        crc = add_double(crc, (double)o->label_smoothing);
        crc = add_double(crc, (double)o->delta);
        crc = add_double(crc, (double)o->weight);
    }
    return crc;
}

void ps_config_check_init(ps_config_check *t, const ps_plan *p, const char *node)
{
    const manta_session *s = p->s;
    int n;

    *t = (ps_config_check){.n = 0};
    snprintf(t->node, sizeof t->node, "%s", node);
    n = snprintf(t->text, sizeof t->text,
                 "model\t%.64s of %lld parameters\n"
                 "layers' digest\t%08x\n"
                 "seed\t%llu\n"
                 "optimizer\t%s\n"
                 "learning rate\t%.9g\n"
                 "optimizer's options' digest\t%08x\n"
                 "losses' digest\t%08x\n"
                 "batch size\t%lld\n"
                 "number of steps in an epoch\t%lld\n",
                 s->m->name, (long long)manta_session_params(s), digest_model(s->m),
                 (unsigned long long)layout_run(&s->l, s->state)->seed, manta_optimizer_name(&s->opt),
                 s->opt.learning_rate, digest_optimizer(&s->opt), digest_losses(s),
                 (long long)p->feed->lo.batch_size, (long long)p->steps);
    t->n = n < 0 ? 0 : (size_t)n < sizeof t->text ? (size_t)n : sizeof t->text - 1;
}

/* ---- what others have ---- */

/* The next line of n bytes at `from`: its length, without the end. */
static size_t line_length(const char *from, size_t n)
{
    const char *end = memchr(from, '\n', n);

    return end ? (size_t)(end - from) : n;
}

/* What stands behind the name in a line, for a sentence. */
static void value_of(const char *from, size_t n, const char *name, char *out, size_t size)
{
    size_t skip = strlen(name), k = 0;

    if (n <= skip || memcmp(from, name, skip) || from[skip] != '\t') {
        snprintf(out, size, "not said");
        return;
    }
    for (size_t i = skip + 1; i < n && k + 1 < size; i++)
        out[k++] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
    out[k] = '\0';
}

manta_status ps_config_check_compare(const ps_config_check *t, const char *who, const void *theirs, size_t n)
{
    const char *a = t->text, *b = theirs;
    size_t left_a = t->n, left_b = n;

    while (left_a) {
        size_t na = line_length(a, left_a), nb = left_b ? line_length(b, left_b) : 0;
        if (na != nb || memcmp(a, b, na)) {
            char name[64], mine[120], other[120];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(a, "\t\n"), a);
            value_of(a, na, name, mine, sizeof mine);
            value_of(b, nb, name, other, sizeof other);
            return manta_fail(MANTA_EPERM, "%s is at another training than %s: its %s is %s, not %s", who,
                              t->node, name, other, mine);
        }
        a += na + (na < left_a);
        b += nb + (nb < left_b);
        left_a -= na + (na < left_a);
        left_b -= nb + (nb < left_b);
    }
    return MANTA_OK;
}

manta_status ps_config_check_hello(void *ctx, int i, const hello *theirs)
{
    ps_config_check *t = ctx;
    manta_status st = ps_config_check_compare(t, theirs->node, theirs->word, theirs->n_word);

    (void)i;
    if (!st || strcmp(theirs->node, "coordinator") != 0) return st;
    manta_error_get(&t->why);
    t->refused = true;
    return st;
}
