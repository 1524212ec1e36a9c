/* plan.c - groups of ranks that are forked from one process, or its threads. */
#include <fcntl.h>

#include "base/args.h"
#include "base/mem.h"
#include "comm/group.h"
#include "comm/shm.h"
#include "os/sys.h"

struct manta_group_plan {
    int fd; /* of the shared memory */
    int size;
    manta_group_options o;
};

manta_status manta_group_plan_new(int size, const manta_group_options *o, manta_group_plan **out)
{
    REFUSE_NULL(out);

    manta_group_options filled;
    shm_head h;
    int fd;

    TRY(group_check_size(0, size));
    TRY(group_options(o, &filled));
    if (filled.implementation == MANTA_COMM_RING)
        return manta_fail(
            MANTA_EINVAL,
            "group plan: a ring was asked for, expected shared memory; a ring is opened at an address");
    h = shm_head_of(size, &filled);
    TRY(shm_group_new(&h, &fd));
    manta_group_plan *p = mem_new(sizeof *p);
    *p = (manta_group_plan){.fd = fd, .size = size, .o = filled};
    *out = p;
    return MANTA_OK;
}

void manta_group_plan_free(manta_group_plan *p)
{
    if (!p) return;
    os->close(p->fd);
    mem_free(p);
}

manta_status manta_group_join(const manta_group_plan *p, int rank, manta_group **out)
{
    REFUSE_NULL(p);
    REFUSE_NULL(out);

    shm *t;

    TRY(group_check_size(rank, p->size));
    TRY(shm_group_join(p->fd, rank, &t));
    return group_new(&shm_transport, t, rank, p->size, &p->o, out);
}
