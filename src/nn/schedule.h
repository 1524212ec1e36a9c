/* nn/schedule.h - what is inside schedule.c besides manta_schedule_at(). */
#ifndef NN_SCHEDULE_H
#define NN_SCHEDULE_H

#include <manta/optimizer.h>

/* Refuses a schedule that cannot be: no steps to decay over, falling boundaries,
 * a negative rate. Fields that its kind does not use are looked at too, since
 * they are 0 unless someone meant something by them. */
manta_status schedule_check(const manta_schedule *s) MANTA_MUST_USE;

#endif
