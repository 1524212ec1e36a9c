/* vec.h - an array that grows, of any type.
 *
 *     VEC(int) v = {0};
 *     vec_push(&v, 42);
 *     for (size_t i = 0; i < v.n; i++) use(v.at[i]);
 *     vec_release(&v);
 *
 * The elements are v.at[0 .. v.n): indexing is plain C, and a debugger prints
 * them with `p v.at[0]@v.n`. Control memory: growing ends the program when
 * memory is gone. Pointers to elements are valid until the vec grows.
 *
 * These are macros; v is evaluated several times, so it must be free of side
 * effects. */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include <assert.h>
#include <stddef.h>

#include "base/mem.h"

#define VEC(T)                                                                                               \
    struct {                                                                                                 \
        T *at;                                                                                               \
        size_t n, cap;                                                                                       \
    }

/* Makes room for n elements in all. */
#define vec_reserve(v, count) ((void)((v)->at = vec_fit((v)->at, &(v)->cap, (count), sizeof *(v)->at)))

/* Adds an element at the end. */
#define vec_push(v, ...) (vec_reserve(v, (v)->n + 1), (void)((v)->at[(v)->n++] = (__VA_ARGS__)))

/* Takes the last element off and gives its value. The vec must not be empty. */
#define vec_pop(v) (assert((v)->n > 0), (v)->at[--(v)->n])

/* The last element, as an lvalue. The vec must not be empty. */
#define vec_last(v) ((v)->at[assert((v)->n > 0), (v)->n - 1])

/* Removes element i; those behind it move up. */
#define vec_remove(v, i) (vec_close((v)->at, (v)->n, (i), sizeof *(v)->at), (void)(v)->n--)

#define vec_clear(v)     ((void)((v)->n = 0))
#define vec_release(v)   (mem_free((v)->at), (v)->at = NULL, (void)((v)->n = (v)->cap = 0))

/* Behind vec_reserve(): at, resized so that `need` elements of `size` fit. */
void *vec_fit(void *at, size_t *cap, size_t need, size_t size);

/* Behind vec_remove(): moves the elements behind i up by one. */
void vec_close(void *at, size_t n, size_t i, size_t size);

#endif
