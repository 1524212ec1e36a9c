/* train/session/news.h - what has happened to workers, kept until fit tells it. */
#ifndef TRAIN_SESSION_NEWS_H
#define TRAIN_SESSION_NEWS_H

#include <stdbool.h>
#include <sys/types.h>

enum { NEWS_KEPT = 64 };

typedef enum news_kind {
    NEWS_STARTED,
    NEWS_RECOVERED, /* what a death had held up goes on */
    NEWS_LEFT /* its seat stays empty */
} news_kind;

typedef struct news {
    news_kind kind;
    bool server; /* of parameters; else a worker */
    int rank;
    pid_t pid; /* of the new process, or of the one that ended */
    double ms; /* recovered: from seeing the death to the next commit; 0: not known */
    char cause[96]; /* "killed by signal 9 (Killed)"; of one that left "on request", or why it was given up */
} news;

/* Zeroed: none. */
typedef struct news_queue {
    news at[NEWS_KEPT];
    int first, n;
} news_queue;

void news_add(news_queue *q, const news *e); /* when it is full the oldest gives way */
bool news_take(news_queue *q, news *out); /* the oldest; false: none */

#endif
