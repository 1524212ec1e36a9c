/* watch.h - who wants to hear that an object is ready (manta/watch.h). Private to task/. The
 * runtime's lock is held in all functions here, but in watches_close(). */
#ifndef TASK_WATCH_H
#define TASK_WATCH_H

struct object;

/* Hands out the tokens of an object that has become ready; object->watched is not NULL. Takes their
 * pins back, and leaves it to the caller to see whether the object goes. */
void watch_settled(struct object *o);

/* Ends all watches, and their threads: the runtime is about to go. Their memory stays until they
 * are freed. */
void watches_close(void);

#endif
