/* image_test.c - functions named by where they lie: found again here and by the same
 * program at other addresses; nothing else is found. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/image.h"

static int data;

static int first(void)
{
    return ++data;
}

static int second(void)
{
    return data += 2;
}

static uintptr_t address_of(int (*fn)(void))
{
    return (uintptr_t)fn;
}

static void functions_are_found_by_their_names(void **state)
{
    char a[IMAGE_NAME], b[IMAGE_NAME], abroad[IMAGE_NAME];
    void *library = dlsym(RTLD_DEFAULT, "qsort");

    (void)state;
    assert_true(image_name(address_of(first), a));
    assert_true(image_name(address_of(second), b));
    assert_string_not_equal(a, b);
    assert_true(image_find(a) == address_of(first));
    assert_true(image_find(b) == address_of(second));
    assert_non_null(library);
    assert_true(image_name((uintptr_t)library, abroad));
    assert_true(image_find(abroad) == (uintptr_t)library);
    assert_int_not_equal(strncmp(a, abroad, (size_t)(strchr(a, '+') - a)), 0);
}

static void what_is_no_code_has_no_name(void **state)
{
    char name[IMAGE_NAME] = "before";
    void *heap = malloc(10);

    (void)state;
    assert_false(image_name((uintptr_t)&data, name));
    assert_string_equal(name, "");
    assert_false(image_name((uintptr_t)heap, name));
    assert_false(image_name((uintptr_t)name, name));
    assert_false(image_name(0, name));
    assert_false(image_name(UINTPTR_MAX, name));
    free(heap);
}

static void other_texts_find_nothing(void **state)
{
    const char *texts[] = {"",     "@",     "+",          "@+",       "@+10",
                           "@00+", "first", "@00ff+1000", "@zz+1000", "@00ff+10 "};
    char name[IMAGE_NAME + 2], own[IMAGE_NAME], *plus;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_true(image_find(texts[i]) == 0);
    assert_true(image_name(address_of(first), own));
    plus = strchr(own, '+');
    snprintf(name, sizeof name, "%.*s", (int)(plus - own), own);
    assert_true(image_find(name) == 0);
    strcat(name, "+");
    assert_true(image_find(name) == 0);
    strcat(name, "0"); /* the file's head is no code */
    assert_true(image_find(name) == 0);
    snprintf(name, sizeof name, "%.*s+ffffffffffffff", (int)(plus - own), own);
    assert_true(image_find(name) == 0);
    snprintf(name, sizeof name, "%s ", own);
    assert_true(image_find(name) == 0);
    memset(name, 'a', sizeof name - 1);
    name[0] = '@';
    name[sizeof name - 3] = '+';
    name[sizeof name - 1] = '\0';
    assert_true(image_find(name) == 0);
}

/* In the program started anew, with addresses that are random or fixed: whether the name
 * finds the function there, and where it lies. */
static int answer(const char *name)
{
    if (image_find(name) != address_of(first)) return 1;
    return printf("%zx\n", (size_t)address_of(first)) > 0 ? 0 : 1;
}

static size_t ask_new_program(const char *name, bool fixed)
{
    int out[2], status;
    char text[64] = "";
    pid_t pid;

    assert_int_equal(pipe(out), 0);
    fflush(NULL);
    assert_true((pid = fork()) >= 0);
    if (!pid) {
        dup2(out[1], STDOUT_FILENO);
        (void)personality(fixed ? ADDR_NO_RANDOMIZE : 0); /* where that is forbidden both are alike */
        execl("/proc/self/exe", "image_test", name, (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    assert_true(read(out[0], text, sizeof text - 1) > 0);
    close(out[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return strtoull(text, NULL, 16);
}

static void a_program_started_anew_finds_the_same(void **state)
{
    char name[IMAGE_NAME];
    size_t seen[2];

    (void)state;
    assert_true(image_name(address_of(first), name));
    for (int i = 0; i < 2; i++) seen[i] = ask_new_program(name, i);
    assert_true(seen[0] && seen[1]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_found_by_their_names),
        cmocka_unit_test(what_is_no_code_has_no_name),
        cmocka_unit_test(other_texts_find_nothing),
        cmocka_unit_test(a_program_started_anew_finds_the_same),
    };

    if (argc == 2) return answer(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
