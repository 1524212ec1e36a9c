/* list.h - a ring of links that live inside the things they link.
 *
 *     typedef struct timer { list link; ... } timer;
 *     list timers;
 *     list_init(&timers);
 *     list_push(&timers, &t->link);
 *     for (list *l = timers.next; l != &timers; l = l->next)
 *         use(LIST_ITEM(l, timer, link));
 *
 * Nothing is allocated and nothing can fail; a thing leaves its list in
 * constant time. It must leave before it is freed. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct list {
    struct list *next, *prev;
} list;

/* The thing of type T whose member `link` is *l. */
#define LIST_ITEM(l, T, link) ((T *)(void *)((char *)(l)-offsetof(T, link)))

static inline void list_init(list *l)
{
    l->next = l->prev = l;
}

static inline bool list_is_empty(const list *l)
{
    return l->next == l;
}

/* Puts `item` last (before the head) or first (behind it). */
static inline void list_push(list *head, list *item)
{
    item->prev = head->prev;
    item->next = head;
    head->prev->next = item;
    head->prev = item;
}

static inline void list_push_first(list *head, list *item)
{
    list_push(head->next, item);
}

/* Takes `item` out of whatever list it is in. Harmless when it is in none but
 * initialised, and when done twice. */
static inline void list_remove(list *item)
{
    item->prev->next = item->next;
    item->next->prev = item->prev;
    list_init(item);
}

/* Takes the first item out; NULL when the list is empty. */
static inline list *list_pop(list *head)
{
    list *item = head->next;

    if (item == head) return NULL;
    list_remove(item);
    return item;
}

#endif
