/* os/crash.h - points at which a test has a process kill itself.
 *
 * What survives kill -9 is shown by killing where it hurts: between two stores,
 * after a word is published and before anybody is woken. Such a point is a line of
 * the code that is always compiled in and costs a load of a word that nobody
 * writes:
 *
 *     src/FOLDER/x.h    #define FOLDER_CRASH_POINTS(X) X(FOLDER_CRASH_SENT, "folder/sent", "what has happened")
 *                       CRASH_DECLARE(folder, FOLDER_CRASH_POINTS)
 *     src/FOLDER/x.c    CRASH_DEFINE(folder, FOLDER_CRASH_POINTS)
 *                       folder_crash(FOLDER_CRASH_SENT);
 *     a test            crash_plan_set(&(crash_plan){.point = &folder_crash_points[FOLDER_CRASH_SENT], .nth = 2});
 *
 * A point is known by its address in its folder's table, so that folders cannot
 * take each other's for their own.
 *
 * Who writes what: crash_plan_set() writes the plan, before other threads run or
 * processes are forked, which inherit it (a new image by exec() begins without). The
 * counts lie in memory that those processes share, or in each, as `times` says. */
#ifndef OS_CRASH_H
#define OS_CRASH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct crash_point {
    const char *name; /* folder and noun: "comm/posted" */
    const char *what; /* what has happened by then */
} crash_point;

/* Who dies where. */
typedef struct crash_plan {
    const crash_point *point; /* NULL: nobody does */
    int rank; /* of those processes that say their rank (crash_rank); -1: whoever comes */
    char process[16]; /* the name of the main thread of who is meant; "": whoever comes */
    int64_t nth; /* dies when it comes to the point for the nth time, from 1 */
    /* 0: each process counts for itself, and each may die. Else all count together, so
     * many die, and the second to die is whoever comes to the point next. */
    int times;
} crash_plan;

/* The plan of this process and of those that it forks from now on. NULL: none. */
void crash_plan_set(const crash_plan *plan);

/* The plan's point; for crash_is_planned() alone. */
extern const crash_point *crash_planned;

/* The rank of this process; -1, which it begins with: a plan's rank does not matter to it. */
extern int crash_rank;

/* Whether anybody is to die at this point: a test may need what is not done otherwise,
 * so that the point means something. */
static inline bool crash_is_planned(const crash_point *p)
{
    return __builtin_expect(crash_planned == p, 0);
}

/* Counts, and does not return when the plan says so. */
void crash_count(void);

static inline void crash_here(const crash_point *p)
{
    if (crash_is_planned(p)) crash_count();
}

#define CRASH_ID(id, name, what)  id,
#define CRASH_ROW(id, name, what) {name, what},

/* Declares FOLDER_crash_points, the table, FOLDER_point, the enum that its rows are
 * numbered by, FOLDER_points, how many there are, and FOLDER_crash(point). */
#define CRASH_DECLARE(folder, POINTS)                                                                        \
    typedef enum folder##_point{POINTS(CRASH_ID) folder##_points} folder##_point;                            \
    extern const crash_point folder##_crash_points[];                                                        \
    static inline void folder##_crash(folder##_point p)                                                      \
    {                                                                                                        \
        crash_here(&folder##_crash_points[p]);                                                               \
    }

#define CRASH_DEFINE(folder, POINTS) const crash_point folder##_crash_points[] = {POINTS(CRASH_ROW)};

#endif
