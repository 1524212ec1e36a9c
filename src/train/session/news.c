/* news.c - a short queue. */
#include "train/session/news.h"

void news_add(news_queue *q, const news *e)
{
    if (q->n == NEWS_KEPT) {
        q->first = (q->first + 1) % NEWS_KEPT;
        q->n--;
    }
    q->at[(q->first + q->n++) % NEWS_KEPT] = *e;
}

bool news_take(news_queue *q, news *out)
{
    if (!q->n) return false;
    *out = q->at[q->first];
    q->first = (q->first + 1) % NEWS_KEPT;
    q->n--;
    return true;
}
