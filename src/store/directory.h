/* directory.h - which objects exist, where they lie, who waits for them. Pure.
 *
 *     PROMISE ──▶ PROMISED ──ADD──▶ READY ──MISSED──▶ LOST ──ADD──▶ READY
 *                    │                                  │
 *                    └── FAIL, its maker dies ──▶ BROKEN ◀── FAIL, its owner dies
 *
 * The owner of an object is the process that numbered it: the one that put it,
 * or that called the function whose result it is. An object whose bytes are
 * gone (MISSED) is asked of its owner, which makes it again or says that it
 * cannot. Whoever wants an object is told once: what it is, or why it will
 * never be.
 *
 * An object may be added twice: a call runs again when its worker dies, and
 * that worker may have added it just before. Then the later place counts, if
 * the earlier maker is dead: the caller knows the later one. If that maker is
 * alive, the earlier place counts: others know it.
 *
 * directory_step() takes one event and writes actions; no input, output or
 * clock. Who holds what is refs.h's: it says when an object is to be freed. */
#ifndef STORE_DIRECTORY_H
#define STORE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"
#include "store/store.h"

#define DIRECTORY_OWNER_SHIFT 40 /* an object's number: its owner's, and a count */

typedef struct directory directory;

typedef enum directory_state {
    DIRECTORY_NONE, /* no such object */
    DIRECTORY_PROMISED,
    DIRECTORY_READY,
    DIRECTORY_LOST,
    DIRECTORY_BROKEN
} directory_state;

typedef enum directory_kind {
    DIRECTORY_PROMISE, /* client will make object */
    DIRECTORY_ADD, /* client made object, which lies at `place` (segment 0: in the daemon) */
    DIRECTORY_FAIL, /* object will never be */
    DIRECTORY_WANT, /* client waits for object */
    DIRECTORY_MISSED, /* client found nothing at `place`; `is_lost`: and nobody will */
    DIRECTORY_FREE, /* nobody holds object */
    DIRECTORY_GONE, /* client is dead */
    DIRECTORY_PASS /* everything that was sent when the first n unknown objects were wanted has been read */
} directory_kind;

typedef struct directory_event {
    directory_kind kind;
    uint64_t object;
    uint32_t client;
    store_place place;
    bool is_lost;
    bool maker_is_dead; /* ADD: the one who added it before */
    size_t n;
} directory_event;

typedef enum directory_why {
    DIRECTORY_MAKER_DIED,
    DIRECTORY_OWNER_DIED,
    DIRECTORY_RELEASED,
    DIRECTORY_UNKNOWN
} directory_why;

typedef enum directory_action_kind {
    DIRECTORY_DO_TELL, /* tell client of object: READY, or BROKEN */
    DIRECTORY_DO_TAKE, /* the value that came with ADD is the object's */
    DIRECTORY_DO_HOLD, /* the hold that came with ADD counts */
    DIRECTORY_DO_REBUILD, /* ask client, its owner, to make object again */
    DIRECTORY_DO_BREAK, /* object is BROKEN now: `why`, and client */
    DIRECTORY_DO_LEAVE, /* the bytes at `place`, made by client, belong to object no more */
    DIRECTORY_DO_FORGET /* object is no more: give its data back, then directory_end() */
} directory_action_kind;

typedef struct directory_action {
    directory_action_kind kind;
    uint64_t object;
    uint32_t client;
    store_place place;
    directory_why why;
} directory_action;

typedef VEC(directory_action) directory_actions;

directory *directory_new(void);
void directory_free(directory *d); /* accepts NULL */
void directory_step(directory *d, const directory_event *e, directory_actions *out);

void directory_end(directory *d, uint64_t object); /* after DIRECTORY_DO_FORGET */

/* How many DIRECTORY_PASS would have to look at. */
size_t directory_unknown(const directory *d);

/* What the owner of the directory keeps with an object; NULL when there is no
 * such object. */
void **directory_data(directory *d, uint64_t object);
directory_state directory_state_of(const directory *d, uint64_t object);
uint32_t directory_maker(const directory *d, uint64_t object);
size_t directory_count(const directory *d);
/* The i-th object, in no order; for walks. */
uint64_t directory_at(const directory *d, size_t i);

#endif
