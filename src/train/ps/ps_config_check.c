/* ps_config_check.c - see ps_config_check.h. */
#include "train/ps/ps_config_check.h"

#include <stdio.h>
#include <string.h>

manta_status ps_config_check_init(ps_config_check *t, const ps_plan *p, int self, const char *node)
{
    const manta_session *s = p->s;

    *t = (ps_config_check){.servers = p->servers, .self = self};
    snprintf(t->node, sizeof t->node, "%s", node);
    agreement_add_session(&t->mine, s);
    agreement_add(&t->mine, "seed", "%llu", (unsigned long long)layout_run(&s->l, s->state)->seed);
    agreement_add(&t->mine, "batch size", "%lld", (long long)p->feed->lo.batch_size);
    agreement_add(&t->mine, "number of steps in an epoch", "%lld", (long long)p->steps);
    return p->parent ? MANTA_OK : agreement_add_data(&t->mine, "data", p->feed);
}

manta_status ps_config_check_hello(void *ctx, int i, const hello *theirs)
{
    ps_config_check *t = ctx;
    bool we_are_right = t->self == t->servers || (i != t->servers && t->self < i);
    manta_status st;

    st =
        we_are_right
            ? agreement_compare(theirs->node, theirs->word, theirs->n_word, t->node, t->mine.text, t->mine.n)
            : agreement_compare(t->node, t->mine.text, t->mine.n, theirs->node, theirs->word, theirs->n_word);
    t->differs[i] = st != MANTA_OK;
    if (!st) return st;
    t->at_work = theirs->generation > 0;
    if (t->refused || (i != t->servers && t->self != t->servers)) return st;
    manta_error_get(&t->why);
    t->refused = true;
    return st;
}
