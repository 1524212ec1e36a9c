/* misuse_fixture.h - arguments for the calls that misuse.py writes, and the processes that make them. */
#ifndef MISUSE_FIXTURE_H
#define MISUSE_FIXTURE_H

#include <manta.h>
#include <manta/tool_bench.h>
#include <manta/tool_launch.h>
#include <manta/tool_png.h>
#include <manta/tool_text.h>

typedef struct misuse {
    const char *function, *argument, *value;
    void (*call)(void);
} misuse;

extern const misuse all_cases[];
extern const int n_cases;

/* Memory of zeros for whatever a function may write to or read from; each call gives another piece of it. */
void *room(void);

/* Sizes of an array, for as many dimensions as there may be. */
extern const int64_t good_shape[MANTA_MAX_DIMS];

/* A text that may stand for an argument of this name. */
const char *good_text(const char *argument);
#define TEXT(argument) good_text(argument)

/* An object of a type: what good_TYPE() makes where there is such a function, else memory of zeros. */
void *good_object(const char *type);
#define ONE(type)  ((type *)good_object(#type))
#define GOOD(type) (*(type *)good_object(#type))

/* A model that is being built; ONE(manta_model) is built. */
typedef manta_model open_model;

/* A function that does nothing and returns 0. */
long nothing(void);

/* What a call has come to: a status, or only what it has recorded. */
void told(manta_status st);
void said(void);

#endif
