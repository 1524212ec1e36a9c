/* train/trainer/trainer_functions.h - the functions that a trainer's workers call: loops and
 * makers of datasets, by name.
 *
 *   driver   functions_name()   a function, or a name that the program says    -> a name
 *   worker   functions_find()   the name, out of bytes                         -> a function
 *
 * Between the two there are only names, since a worker may be another program than the
 * driver, or the same one loaded at other addresses. A function has the name that it
 * was registered under. One that was not is named by its place in the file that it is
 * of (os/image.h), so that a plain pointer serves as long as the worker has that file.
 *
 * Threads: registering is done before main(), or by one thread before manta_init(). */
#ifndef TRAIN_TRAINER_TRAINER_FUNCTIONS_H
#define TRAIN_TRAINER_TRAINER_FUNCTIONS_H

#include <manta/trainer.h>

enum { FUNCTION_NAME = 128 }; /* bytes of a name with its end */

typedef enum function_kind { FUNCTION_LOOP, FUNCTION_MAKER } function_kind;

typedef void any_function(void); /* a manta_loop_fn or a manta_dataset_maker, by the kind */

/* The name under which workers are told of a function: given by `name`, or by `fn` (the
 * other one is NULL). `whose` begins a sentence: "the trainer's loop".
 * MANTA_EINVAL none or both are given, or a name that cannot be; MANTA_ENOENT a name that
 * nothing is registered under; MANTA_EEXIST one that two functions are registered under;
 * MANTA_EUNSUPPORTED a function that has no name and no place. */
manta_status functions_name(function_kind kind, const char *whose, const char *name, any_function *fn,
                            char out[FUNCTION_NAME]) MANTA_MUST_USE;

/* The function of that name in this process. MANTA_EUNSUPPORTED there is none: no other
 * attempt in this program will find it. */
manta_status functions_find(function_kind kind, const char *name, any_function **out) MANTA_MUST_USE;

#endif
