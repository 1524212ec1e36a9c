/* trainer_names_other.c - the program that a trainer's workers are forked from in
 * trainer_names.c. It joins the node that $MANTA_ADDRESS names, leaves an actor for each
 * rank of run argv[1] there, and ends. */
#include "trainer_names.h"

#include <manta/actor.h>

/* Code before the functions, so that they lie at other places than in the driver. */
static manta_status never_called(manta_worker *w)
{
    return manta_worker_barrier(w);
}
MANTA_LOOP(never_called)

static manta_dataset *numbers(manta_worker *w, const void *user, size_t size)
{
    (void)w;
    return count_up(user, size, 200);
}
MANTA_DATASET_MAKER(numbers)

static manta_status loop(manta_worker *w)
{
    return report_all(w, 2);
}
MANTA_LOOP(loop)

static manta_status one_of_two(manta_worker *w)
{
    return report_all(w, 2);
}
MANTA_LOOP(one_of_two)

__attribute__((constructor)) static void register_a_second_one(void)
{
    manta_register_loop("one_of_two", never_called);
}

int main(int argc, char **argv)
{
    manta_actor actors[RANKS];
    char name[32];

    CHECK(argc == 2);
    CHECK(!manta_init(&argc, &argv, NULL));
    for (int i = 0; i < RANKS; i++) {
        manta_task_options how = {.name = actor_name(atoi(argv[1]), i, name), .detached = true};
        actors[i] = manta_actor_start("manta_trainer_actor", &how, 0, NULL);
        CHECK(!manta_actor_ready(actors[i], MANTA_FOREVER));
    }
    for (int i = 0; i < RANKS; i++) manta_actor_release(actors[i]);
    manta_shutdown();
    return 0;
}
