/* train/fit/monitor.h - a metric that callbacks watch, with Keras's meaning of better. */
#ifndef TRAIN_FIT_MONITOR_H
#define TRAIN_FIT_MONITOR_H

#include <manta/callback.h>

typedef struct monitor {
    char *name; /* owned */
    bool greater; /* is better */
    char *odd; /* a mode that is none, owned; NULL: there is nothing odd */
    bool warned; /* that it is not among the metrics */
} monitor;

void monitor_init(monitor *m, const char *name, const char *mode); /* name NULL: val_loss */
void monitor_release(monitor *m);

/* Whether its mode is one; for a hook that runs before the training. MANTA_EINVAL */
manta_status monitor_check(const monitor *m) MANTA_MUST_USE;

/* The value in the logs; false, and a warning once, when there is none. */
bool monitor_value(monitor *m, const manta_fit_context *f, const char *who, double *out);

#endif
