/* image.c - see image.h. The loader tells where each file lies and where its notes are;
 * the build id is one of these notes. */
#include "os/image.h"

#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUILD_ID = 32 }; /* most bytes of one; linkers write 8, 16 or 20 */

typedef struct search {
    uintptr_t address; /* wanted, or found; 0: not found */
    uintptr_t distance;
    char build[2 * BUILD_ID + 1]; /* wanted, or found; "": not found */
} search;

static size_t align_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* The note "GNU" of type NT_GNU_BUILD_ID among `size` bytes of notes; false: none. */
static bool read_notes(const char *at, size_t size, size_t align, char build[2 * BUILD_ID + 1])
{
    while (size >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *n = (const void *)at;
        size_t id = align_up(sizeof *n + n->n_namesz, align), next = align_up(id + n->n_descsz, align);
        if (id + n->n_descsz > size) return false;
        if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp(at + sizeof *n, "GNU", 4) &&
            n->n_descsz > 0 && n->n_descsz <= BUILD_ID) {
            for (size_t i = 0; i < n->n_descsz; i++)
                snprintf(build + 2 * i, 3, "%02x", (unsigned)(unsigned char)at[id + i]);
            return true;
        }
        if (next >= size) return false;
        size -= next;
        at += next;
    }
    return false;
}

static bool read_build(const struct dl_phdr_info *info, char build[2 * BUILD_ID + 1])
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *at = (const char *)(uintptr_t)(info->dlpi_addr + p->p_vaddr);
        if (p->p_type == PT_NOTE && read_notes(at, p->p_memsz, p->p_align == 8 ? 8 : 4, build)) return true;
    }
    return false;
}

/* Whether there is code at that distance from the file's first byte. */
static bool has_code(const struct dl_phdr_info *info, uintptr_t distance)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD && (p->p_flags & PF_X) && distance >= p->p_vaddr &&
            distance - p->p_vaddr < p->p_memsz)
            return true;
    }
    return false;
}

static int look_for_address(struct dl_phdr_info *info, size_t size, void *ctx)
{
    search *s = ctx;

    (void)size;
    if (s->address < info->dlpi_addr || !has_code(info, s->address - info->dlpi_addr)) return 0;
    s->distance = s->address - info->dlpi_addr;
    if (!read_build(info, s->build)) s->build[0] = '\0';
    return 1;
}

static int look_for_build(struct dl_phdr_info *info, size_t size, void *ctx)
{
    search *s = ctx;
    char build[2 * BUILD_ID + 1];

    (void)size;
    if (!read_build(info, build) || strcmp(build, s->build) != 0) return 0;
    if (has_code(info, s->distance)) s->address = info->dlpi_addr + s->distance;
    return 1;
}

bool image_name(uintptr_t address, char out[IMAGE_NAME])
{
    search s = {.address = address};

    out[0] = '\0';
    if (!dl_iterate_phdr(look_for_address, &s) || !*s.build) return false;
    snprintf(out, IMAGE_NAME, "@%s+%zx", s.build, (size_t)s.distance);
    return true;
}

uintptr_t image_find(const char *name)
{
    const char *plus = strchr(name, '+');
    search s = {0};
    char *end;

    if (*name != '@' || !plus || plus == name + 1 || (size_t)(plus - name) > 2 * BUILD_ID + 1) return 0;
    memcpy(s.build, name + 1, (size_t)(plus - name) - 1);
    if (strspn(plus + 1, "0123456789abcdef") != strlen(plus + 1)) return 0;
    s.distance = strtoull(plus + 1, &end, 16);
    if (end == plus + 1 || *end) return 0;
    (void)dl_iterate_phdr(look_for_build, &s);
    return s.address;
}
