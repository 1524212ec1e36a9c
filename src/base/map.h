/* map.h - from strings or numbers to values of any type.
 *
 *     MAP(int) m = {0};                     MAP_U64(conn *) m = {0};
 *     *map_put(&m, "epoch") = 3;            *map_u64_put(&m, id) = c;
 *     int *v = map_find(&m, "epoch");       conn **v = map_u64_find(&m, id);
 *     map_release(&m);                      map_u64_release(&m);
 *
 * The entries lie side by side in m.at[0 .. m.n), in the order in which they
 * were put (a removal moves the last entry into the gap), so that going over a
 * map is a plain loop with the same order in every run, and a debugger prints
 * it with `p m.at[0]@m.n`. Beside them a table of entry numbers, open
 * addressing with linear probing, finds them:
 *
 *     slots  | 0 | 2 | 0 | 1 | 3 | 0 | 0 | 0 |     0: empty, else entry + 1
 *     at     | {hash, "a", v} | {hash, "b", v} | {hash, "c", v} |
 *
 * String keys are copied. Control memory: growing ends the program when memory
 * is gone. Pointers to values are valid until the next put or remove. The
 * macros evaluate m several times. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct map_table {
    uint32_t *slots;
    uint32_t n_slots; /* 0 or a power of two, more than 4/3 of the entries */
    uint32_t cap; /* entries allocated */
} map_table;

#define MAP(T)                                                                                               \
    struct {                                                                                                 \
        struct {                                                                                             \
            uint64_t hash;                                                                                   \
            char *key; /* owned */                                                                           \
            T value;                                                                                         \
        } * at;                                                                                              \
        size_t n;                                                                                            \
        map_table table;                                                                                     \
    }

#define MAP_U64(T)                                                                                           \
    struct {                                                                                                 \
        struct {                                                                                             \
            uint64_t key;                                                                                    \
            T value;                                                                                         \
        } * at;                                                                                              \
        size_t n;                                                                                            \
        map_table table;                                                                                     \
    }

/* A pointer to the value of `key`, NULL when there is none. */
#define map_find(m, k)     MAP_VALUE_(m, map_seek(&(m)->table, (m)->at, sizeof *(m)->at, (k)))
#define map_u64_find(m, k) MAP_VALUE_(m, map_u64_seek(&(m)->table, (m)->at, sizeof *(m)->at, (k)))

/* A pointer to the value of `key`, which is added, zeroed, when there is none. */
#define map_put(m, k)                                                                                        \
    ((m)->at = map_grow(&(m)->table, (m)->at, (m)->n, sizeof *(m)->at),                                      \
     MAP_ADDED_(m, map_add(&(m)->table, (m)->at, &(m)->n, sizeof *(m)->at, (k))))
#define map_u64_put(m, k)                                                                                    \
    ((m)->at = map_u64_grow(&(m)->table, (m)->at, (m)->n, sizeof *(m)->at),                                  \
     MAP_ADDED_(m, map_u64_add(&(m)->table, (m)->at, &(m)->n, sizeof *(m)->at, (k))))

/* Removes the entry of `key`; false when there is none. */
#define map_remove(m, k)     map_drop(&(m)->table, (m)->at, &(m)->n, sizeof *(m)->at, (k))
#define map_u64_remove(m, k) map_u64_drop(&(m)->table, (m)->at, &(m)->n, sizeof *(m)->at, (k))

/* Gives back what a map of numbers no longer needs, when it is large and hardly used. As a
 * put or remove, it ends the life of pointers to values. */
#define map_u64_trim(m) ((void)((m)->at = map_u64_shrink(&(m)->table, (m)->at, (m)->n, sizeof *(m)->at)))

/* Gives all memory back (not what values point to); leaves an empty map. */
#define map_release(m)     ((m)->at = map_end(&(m)->table, (m)->at, (m)->n, sizeof *(m)->at), (void)((m)->n = 0))
#define map_u64_release(m) ((m)->at = map_u64_end(&(m)->table, (m)->at), (void)((m)->n = 0))

/* Behind the macros. An entry is found by its address. */
#define MAP_VALUE_(m, entry)                                                                                 \
    ((__typeof__(&(m)->at->value))map_value((entry), offsetof(__typeof__(*(m)->at), value)))
#define MAP_ADDED_(m, entry)                                                                                 \
    ((__typeof__(&(m)->at->value))map_added((entry), offsetof(__typeof__(*(m)->at), value)))

static inline void *map_value(void *entry, size_t offset)
{
    return entry ? (char *)entry + offset : NULL;
}

static inline void *map_added(void *entry, size_t offset)
{
    return (char *)entry + offset;
}

void *map_seek(const map_table *t, const void *at, size_t size, const char *key);
void *map_grow(map_table *t, void *at, size_t n, size_t size);
void *map_add(map_table *t, void *at, size_t *n, size_t size, const char *key); /* never NULL */
bool map_drop(map_table *t, void *at, size_t *n, size_t size, const char *key);
void *map_end(map_table *t, void *at, size_t n, size_t size); /* NULL */

void *map_u64_seek(const map_table *t, const void *at, size_t size, uint64_t key);
void *map_u64_grow(map_table *t, void *at, size_t n, size_t size);
void *map_u64_add(map_table *t, void *at, size_t *n, size_t size, uint64_t key); /* never NULL */
bool map_u64_drop(map_table *t, void *at, size_t *n, size_t size, uint64_t key);
void *map_u64_shrink(map_table *t, void *at, size_t n, size_t size);
void *map_u64_end(map_table *t, void *at); /* NULL */

#endif
