/* collectives.c - each kind of collective and message as a function of its own.
 *
 * Such a function names its arguments and fills in a manta_collective;
 * manta_group_run() checks it, gives it its turn and waits (group.c). */
#include <manta/comm.h>

#include "base/args.h"

manta_status manta_group_barrier(manta_group *g)
{
    REFUSE_NULL(g);
    return manta_group_run(g, &(manta_collective){.kind = MANTA_COLLECTIVE_BARRIER});
}

manta_status manta_group_all_reduce(manta_group *g, const void *in, void *out, int64_t n, manta_dtype t,
                                    manta_reduce r)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(n, in);
    REFUSE_NULL(out);

    return manta_group_run(
        g, &(manta_collective){
               .kind = MANTA_COLLECTIVE_ALL_REDUCE, .in = in, .out = out, .n = n, .dtype = t, .reduce = r});
}

manta_status manta_group_broadcast(manta_group *g, void *data, int64_t n, manta_dtype t, int root)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(n, data);

    return manta_group_run(
        g,
        &(manta_collective){
            .kind = MANTA_COLLECTIVE_BROADCAST, .in = data, .out = data, .n = n, .dtype = t, .peer = root});
}

manta_status manta_group_reduce(manta_group *g, const void *in, void *out, int64_t n, manta_dtype t,
                                manta_reduce r, int root)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(n, in);
    REFUSE_NULL(out);

    return manta_group_run(g, &(manta_collective){.kind = MANTA_COLLECTIVE_REDUCE,
                                                  .in = in,
                                                  .out = out,
                                                  .n = n,
                                                  .dtype = t,
                                                  .reduce = r,
                                                  .peer = root});
}

manta_status manta_group_all_gather(manta_group *g, const void *in, void *out, int64_t n, manta_dtype t)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(n, in);
    REFUSE_NULL(out);

    return manta_group_run(
        g,
        &(manta_collective){.kind = MANTA_COLLECTIVE_ALL_GATHER, .in = in, .out = out, .n = n, .dtype = t});
}

manta_status manta_group_reduce_scatter(manta_group *g, const void *in, void *out, int64_t n, manta_dtype t,
                                        manta_reduce r)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(n, in);
    REFUSE_NULL(out);

    return manta_group_run(
        g,
        &(manta_collective){
            .kind = MANTA_COLLECTIVE_REDUCE_SCATTER, .in = in, .out = out, .n = n, .dtype = t, .reduce = r});
}

manta_status manta_group_all_to_all(manta_group *g, const void *in, void *out, int64_t n, manta_dtype t)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(n, in);
    REFUSE_NULL(out);

    return manta_group_run(
        g,
        &(manta_collective){.kind = MANTA_COLLECTIVE_ALL_TO_ALL, .in = in, .out = out, .n = n, .dtype = t});
}

manta_status manta_group_send(manta_group *g, const void *in, int64_t n, manta_dtype t, int to)
{
    REFUSE_NULL(g);
    REFUSE_ARRAY(n, in);

    return manta_group_run(
        g, &(manta_collective){.kind = MANTA_COLLECTIVE_SEND, .in = in, .n = n, .dtype = t, .peer = to});
}

manta_status manta_group_receive(manta_group *g, void *out, int64_t n, manta_dtype t, int from)
{
    REFUSE_NULL(g);
    REFUSE_NULL(out);

    return manta_group_run(
        g,
        &(manta_collective){.kind = MANTA_COLLECTIVE_RECEIVE, .out = out, .n = n, .dtype = t, .peer = from});
}
