/* s3_key.c - see s3_key.h. */
#include "train/storage/s3_key.h"

#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

size_t s3_key_stem(const char *name, size_t n)
{
    size_t end = strlen(S3_KEY_LITTER), digits;

    if (n <= end + 1 || *name != '.' || memcmp(name + n - end, S3_KEY_LITTER, end) != 0) return 0;
    n -= end + 1; /* behind the first dot, without the end */
    for (digits = n; digits && name[digits] >= '0' && name[digits] <= '9';) digits--;
    if (digits > 1 && digits < n && name[digits] == '.') n = digits - 1;
    return n;
}

const char *s3_key_last(const char *key)
{
    const char *slash = strrchr(key, '/');

    return slash ? slash + 1 : key;
}

bool s3_key_is_litter(const char *key)
{
    const char *name = s3_key_last(key);

    return s3_key_stem(name, strlen(name)) > 0;
}

char *s3_key_settle(const char *key)
{
    buf to = {0};

    for (const char *p = key; *p;) {
        size_t n = strcspn(p, "/"), stem = s3_key_stem(p, n);
        const char *rest = p + n;
        if (!n) { /* s3://bucket/runs//a is s3://bucket/runs/a */
            p++;
            continue;
        }
        if (stem && *rest && strcmp(rest, "/" S3_KEY_MANIFEST) != 0) {
            buf_add(&to, p + 1, stem);
        } else {
            buf_add(&to, p, n);
        }
        if (*rest) buf_add_char(&to, '/');
        p = rest + (*rest == '/');
    }
    return buf_take(&to);
}

char *s3_key_published(const char *key)
{
    const char *name = s3_key_last(key);
    size_t n = s3_key_stem(name, strlen(name));

    return mem_printf("%.*s%.*s", (int)(name - key), key, (int)n, name + 1);
}
